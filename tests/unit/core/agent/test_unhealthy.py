"""Running containers whose health check fails."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from persys.core.agent.health import UNHEALTHY, Health
from persys.core.agent.next_step import CRASH_LOOP, after_settling, before_restart, next_step
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import (
    ContainerSpec,
    HealthCheck,
    HealthType,
    RestartPolicy,
    VMSpec,
    WorkloadType,
)
from persys.model.status import Actual
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SICK = Artefact(
    "c1",
    "persys-web",
    Condition.RUNNING,
    Revision("r1"),
    started_at=NOW - timedelta(hours=1),
    health=Health.UNHEALTHY,
    health_error="status 500",
)
SHOWN = Progress(unhealthy_shown=True)


def an_order(policy: str = "always", *, restarts: bool = True, retries_max: int = 0) -> Order:
    spec = ContainerSpec(
        "x",
        restart=RestartPolicy(policy, retries_max),
        health=HealthCheck(restart_unhealthy=restarts),
    )
    return Order(
        WorkloadId("web"), WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING, spec
    )


def settled(order: Order, artefact: Artefact, progress: Progress) -> Settled:
    outcome = next_step(order, artefact, progress, now=NOW)
    assert isinstance(outcome, Settled)
    return outcome


def test_a_running_workload_is_reported_as_unhealthy() -> None:
    found = settled(an_order(restarts=False), SICK, Progress())

    assert (found.actual, found.code) == (Actual.RUNNING, UNHEALTHY)
    assert found.message == "unhealthy: status 500"
    assert found.look_again_at is None


def test_a_vm_is_restarted_like_a_container() -> None:
    check = HealthCheck(HealthType.GUEST_AGENT, restart_unhealthy=True)
    order = replace(an_order(), type=WorkloadType.VM, spec=VMSpec(1, 512, health=check))
    machine = replace(SICK, boots=True)

    assert settled(order, machine, Progress()).code == UNHEALTHY
    assert next_step(order, machine, SHOWN, now=NOW) == Perform(Step.RESTART, by_policy=True)
    alone = replace(order, spec=VMSpec(1, 512, health=HealthCheck(HealthType.GUEST_AGENT)))
    assert settled(alone, machine, SHOWN).code == UNHEALTHY


def test_an_unhealthy_vm_without_an_address_is_inspected_again() -> None:
    waiting = replace(SICK, boots=True, look_again_after=timedelta(seconds=1))
    order = replace(an_order(restarts=False), type=WorkloadType.VM, spec=VMSpec(1, 512))

    found = settled(order, waiting, SHOWN)

    assert (found.code, found.look_again_at) == (UNHEALTHY, NOW + timedelta(seconds=1))


def test_it_is_shown_for_a_moment_before_it_is_started_again() -> None:
    found = settled(an_order(), SICK, Progress())

    assert found.code == UNHEALTHY
    assert found.look_again_at == NOW + timedelta(seconds=1)
    assert next_step(an_order(), SICK, after_settling(Progress(), found), now=NOW) == Perform(
        Step.RESTART, by_policy=True
    )


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure"])
def test_every_policy_that_starts_failed_work_again_cures(policy: str) -> None:
    assert next_step(an_order(policy), SICK, SHOWN, now=NOW) == Perform(
        Step.RESTART, by_policy=True
    )


def test_a_policy_that_starts_nothing_again_leaves_it() -> None:
    assert settled(an_order("no"), SICK, SHOWN).code == UNHEALTHY


def test_it_is_not_restarted_more_often_than_the_policy_allows() -> None:
    order = an_order("on-failure", retries_max=2)

    assert settled(order, SICK, replace(SHOWN, health_restarts=2)).look_again_at is None


def test_each_cure_in_a_row_waits_longer() -> None:
    waits = []
    for health_restarts in (1, 2, 3, 30):
        fresh = replace(SICK, started_at=NOW)
        found = settled(an_order(), fresh, replace(SHOWN, health_restarts=health_restarts))
        assert found.look_again_at is not None
        waits.append((found.look_again_at - NOW).total_seconds())

    assert waits == [10, 20, 40, 300]


@pytest.mark.parametrize("health", [Health.UNHEALTHY, Health.STARTING])
def test_cures_that_do_not_help_are_a_crash_loop(health: Health) -> None:
    fresh = replace(SICK, health=health, started_at=NOW)
    found = settled(an_order(), fresh, replace(SHOWN, health_restarts=3))

    assert (found.actual, found.code) == (Actual.FAILED, CRASH_LOOP)
    assert found.message == "crash loop: unhealthy, restarted 3 times; status 500"


def test_being_healthy_ends_the_count_of_cures_and_the_crash_loop() -> None:
    well = replace(SICK, health=Health.HEALTHY, health_error="")
    progress = Progress(health_restarts=5)
    found = settled(an_order(), well, progress)

    assert found == Settled(Actual.RUNNING, healthy=True)
    assert after_settling(progress, found).health_restarts == 0


def test_a_cure_that_was_cut_off_between_stop_and_start_is_ended() -> None:
    progress = before_restart(SHOWN, SICK)
    stopped = replace(SICK, condition=Condition.EXITED, exit_code=0, finished_at=NOW, health=None)

    assert progress.health_restarts == 1
    assert next_step(an_order("on-failure"), stopped, progress, now=NOW) == Perform(Step.START)
