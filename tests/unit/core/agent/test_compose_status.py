"""The state of a stack from its containers, and the next step."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from persys.core.agent.compose_status import (
    ServiceContainer,
    ServicePlan,
    artefact_of,
    log_source,
    to_start,
)
from persys.core.agent.health import Health
from persys.core.agent.next_step import COMPLETED, CRASH_LOOP, next_step
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.core.agent.report import describe
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ComposeSpec, RestartPolicy, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
R1 = Revision("r1")
LAUNCHED = Progress(launching=True)


def a_member(
    service: str,
    condition: Condition = Condition.RUNNING,
    *,
    restart: str = "no",
    exit_code: int = 0,
    restart_count: int = 0,
    health: Health | None = None,
) -> ServiceContainer:
    seen = Artefact(
        f"id-{service}",
        f"p-{service}-1",
        condition,
        R1,
        exit_code=exit_code,
        restart_count=restart_count,
        started_at=NOON if condition is not Condition.CREATED else None,
        finished_at=NOON + timedelta(seconds=1) if condition is Condition.EXITED else None,
        health=health,
        ports=(f"8080->{service}",),
    )
    return ServiceContainer(service, seen, RestartPolicy(restart))


def a_stack(
    *members: ServiceContainer,
    revision: Revision = R1,
    plans: Mapping[str, ServicePlan] | None = None,
) -> Artefact:
    found = artefact_of("p", members, plans or {}, revision=revision, commit="c0ffee")
    assert found is not None
    return found


def an_order(desired: Desired = Desired.RUNNING) -> Order:
    return Order(WorkloadId("w"), WorkloadType.COMPOSE, R1, 1, desired, ComposeSpec())


def outcome(
    stack: Artefact | None, progress: Progress = LAUNCHED, desired: Desired = Desired.RUNNING
) -> Perform | Settled:
    return next_step(an_order(desired), stack, progress, now=NOON + timedelta(minutes=1))


DONE = a_member("migrate", Condition.EXITED)
WEB = a_member("web")


def test_a_stack_without_containers_is_absent() -> None:
    assert artefact_of("p", [], {"web": ServicePlan()}, revision=R1) is None


def test_a_stack_runs_when_its_services_run_or_are_done() -> None:
    stack = a_stack(WEB, DONE)
    assert stack.parts == ("migrate=completed", "web=running")
    assert outcome(stack) == Settled(Actual.RUNNING)


def test_a_stack_with_only_exited_services_is_completed() -> None:
    settled = outcome(a_stack(DONE))
    assert isinstance(settled, Settled)
    assert (settled.actual, settled.code, settled.final) == (Actual.STOPPED, COMPLETED, True)


def test_a_service_that_ended_badly_fails_the_stack_while_others_run() -> None:
    stack = a_stack(WEB, a_member("job", Condition.EXITED, exit_code=4))
    settled = outcome(stack)
    assert isinstance(settled, Settled)
    assert settled.actual is Actual.FAILED
    assert settled.message == "job: exited with code 4"
    assert stack.id == "id-job"


@pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.DELETED])
def test_a_failed_stack_is_stopped_as_long_as_anything_runs(desired: Desired) -> None:
    stack = a_stack(WEB, a_member("job", Condition.EXITED, exit_code=4))
    assert outcome(stack, desired=desired) == Perform(Step.STOP)


def test_a_service_that_restarts_again_and_again_fails_the_stack() -> None:
    looping = a_member("bad", Condition.RESTARTING, restart="always", restart_count=5, exit_code=1)
    settled = outcome(a_stack(WEB, looping))
    assert isinstance(settled, Settled)
    assert settled.code == CRASH_LOOP
    assert settled.message.startswith("crash loop: bad restarted 5 times")


def test_a_service_stopped_by_hand_is_started_again() -> None:
    stopped = a_member("db", Condition.EXITED, restart="always", exit_code=137)
    assert outcome(a_stack(WEB, stopped)) == Perform(Step.START)
    assert to_start([WEB, stopped, DONE], {}) == [stopped]


def test_services_restarted_by_the_agent_follow_the_policy_of_the_file() -> None:
    ended = a_member("db", Condition.EXITED, exit_code=1)  # its Docker restart policy is no
    plan = ServicePlan(RestartPolicy("always"))
    assert outcome(a_stack(WEB, ended, plans={"db": plan, "web": ServicePlan()})) == Perform(
        Step.START
    )


@pytest.mark.parametrize(
    "members", [[WEB, a_member("db", Condition.CREATED)], [WEB]], ids=["created", "missing"]
)
def test_a_service_that_is_not_there_is_brought_up_with_the_whole(
    members: list[ServiceContainer],
) -> None:
    plans = {"web": ServicePlan(), "db": ServicePlan()}
    assert outcome(a_stack(*members, plans=plans)) == Perform(Step.START)
    assert to_start(members, plans) is None


def test_a_copy_that_is_missing_is_noticed() -> None:
    stack = a_stack(WEB, plans={"web": ServicePlan(replicas=2)})
    assert stack.parts == ("web=missing",)
    assert stack.condition is Condition.CREATED


def test_a_stack_that_was_stopped_is_brought_up_whole() -> None:
    stopped = [a_member(name, Condition.EXITED, exit_code=137) for name in ("web", "db")]
    assert to_start(stopped, {}) is None
    assert outcome(a_stack(*stopped), Progress()) == Perform(Step.START)


def test_another_revision_is_made_in_place_once_its_images_are_here() -> None:
    old = a_stack(WEB, revision=Revision("r0"))
    assert outcome(old, Progress()) == Perform(Step.PULL)
    assert outcome(old, Progress(done=frozenset({Step.PULL}))) == Perform(Step.CREATE)


def test_an_unhealthy_service_is_named() -> None:
    stack = a_stack(WEB, a_member("db", health=Health.UNHEALTHY))
    assert stack.parts == ("db=unhealthy", "web=running")
    settled = outcome(stack)
    assert isinstance(settled, Settled)
    assert settled.message == "unhealthy: db"


def test_a_service_whose_health_check_has_not_passed_yet_is_starting() -> None:
    stack = a_stack(WEB, a_member("db", Condition.RUNNING, health=Health.STARTING))

    assert stack is not None
    assert stack.parts == ("db=starting", "web=running")


def test_the_log_of_a_failed_service_is_shown_while_others_start() -> None:
    failed = a_member("migrate", Condition.EXITED, exit_code=1)
    assert log_source([a_member("web", Condition.CREATED), WEB, failed], {}) is failed


def test_a_stack_is_described_by_its_services_and_its_commit() -> None:
    words = describe(a_stack(WEB, DONE))
    assert words["compose.project"] == "p"
    assert words["compose.services"] == "migrate=completed,web=running"
    assert words["compose.commit"] == "c0ffee"
    assert words["container.ports"] == "8080->migrate,8080->web"
    assert "container.id" not in words
