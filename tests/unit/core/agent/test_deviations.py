"""A running container that differs from its configuration: reported, repaired, and failed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.deviations import (
    DRIFTED,
    REPAIRS_MAX,
    Deviation,
    DeviationKind,
    Repairs,
    Shape,
    deviations,
    summary,
)
from persys.core.agent.health import Health
from persys.core.agent.next_step import (
    after_settling,
    after_step,
    before_repair,
    before_replace,
    next_step,
)
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ComposeSpec, ContainerSpec, RestartPolicy, Spec, type_of
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WANTED = Shape("web", ("bridge",), ("80/tcp",), {"Memory": 64, "CpuShares": 0})
CUT_OFF = Deviation(DeviationKind.NETWORK, "network bridge is not attached")
RENAMED = Deviation(DeviationKind.NAME, "name is x, created as web")
UNLIMITED = Deviation(
    DeviationKind.LIMIT, "CpuShares is 2, created with no limit", repairable=False
)
SHOWN = Progress(launching=True, repairs=Repairs(shown=True))

shapes = st.builds(
    Shape,
    name=st.sampled_from(["web", "other"]),
    networks=st.lists(st.sampled_from(["bridge", "back", "front"]), unique=True).map(tuple),
    ports=st.lists(st.sampled_from(["80/tcp", "53/udp"]), unique=True).map(tuple),
    limits=st.dictionaries(st.sampled_from(["Memory", "CpuShares"]), st.integers(0, 3)),
)


def an_order(spec: Spec | None = None, desired: Desired = Desired.RUNNING) -> Order:
    spec = spec or ContainerSpec("x", restart=RestartPolicy("no"))
    return Order(WorkloadId("web"), type_of(spec), Revision("r1"), 1, desired, spec)


def running(*found: Deviation, **changes: object) -> Artefact:
    seen = Artefact(
        "c1", "web", Condition.RUNNING, Revision("r1"), started_at=NOW, deviations=found
    )
    return replace(seen, **changes)


def after_repairs(count: int, problem: str = "") -> Progress:
    """Without success, the last one just now."""
    return replace(SHOWN, repairs=Repairs(count, NOW, problem, shown=True))


def settled(artefact: Artefact, progress: Progress, *, order: Order | None = None) -> Settled:
    outcome = next_step(order or an_order(), artefact, progress, now=NOW)
    assert isinstance(outcome, Settled)
    return outcome


def test_each_deviation_names_the_actual_and_the_expected_value() -> None:
    seen = Shape("other", (), (), {"Memory": 128, "CpuShares": 512})

    assert summary(deviations(WANTED, seen, part="api")) == (
        "api: network bridge is not attached; api: port 80/tcp is not published; "
        "api: Memory is 128, created with 64; api: CpuShares is 512, created with no limit; "
        "api: name is other, created as web"
    )


def test_a_limit_that_docker_cannot_remove_is_only_reported() -> None:
    found = deviations(WANTED, replace(WANTED, limits={"Memory": 128, "CpuShares": 512}))

    assert [one.repairable for one in found] == [True, False]


def test_extra_networks_and_ports_and_unknown_limits_are_not_deviations() -> None:
    seen = Shape("web", ("bridge", "other"), ("80/tcp", "81/tcp"), {})

    assert deviations(WANTED, seen) == ()


@given(shapes)
def test_an_unchanged_container_has_no_deviation(shape: Shape) -> None:
    assert deviations(shape, shape) == ()


@given(shapes, shapes)
def test_attaching_networks_and_publishing_ports_resolves_the_deviations(
    wanted: Shape, seen: Shape
) -> None:
    repaired = replace(
        seen, networks=seen.networks + wanted.networks, ports=seen.ports + wanted.ports
    )

    assert not any(one.cuts_off for one in deviations(wanted, repaired))


def test_it_is_shown_for_a_moment_before_it_is_repaired() -> None:
    found = settled(running(CUT_OFF), Progress(launching=True))

    assert (found.actual, found.code) == (Actual.RUNNING, DRIFTED)
    assert found.message == "network bridge is not attached"
    assert found.look_again_at == NOW + timedelta(seconds=1)
    progress = after_settling(Progress(launching=True), found)
    assert next_step(an_order(), running(CUT_OFF), progress, now=NOW) == Perform(Step.REPAIR)


def test_a_container_is_attached_again_at_first_and_replaced_when_that_did_not_help() -> None:
    once = before_repair(SHOWN, now=NOW - timedelta(minutes=1))

    assert next_step(an_order(), running(CUT_OFF), SHOWN, now=NOW) == Perform(Step.REPAIR)
    assert next_step(an_order(), running(CUT_OFF), once, now=NOW) == Perform(Step.REPLACE)


def test_a_disconnected_service_of_a_stack_is_replaced_immediately() -> None:
    order = an_order(ComposeSpec())

    assert next_step(order, running(CUT_OFF), SHOWN, now=NOW) == Perform(Step.REPLACE)
    assert next_step(order, running(RENAMED), SHOWN, now=NOW) == Perform(Step.REPAIR)


def test_a_repair_that_took_longer_than_its_pause_is_shown_before_the_next() -> None:
    failure = Failure(FailureReason.RUNTIME_ERROR, "replace did not finish within 1800 s")
    progress = before_repair(SHOWN, now=NOW - timedelta(seconds=1800))
    progress = after_step(progress, Step.REPLACE, failure, now=NOW)

    found = settled(running(CUT_OFF), progress)

    assert found.message.endswith("repair failed: replace did not finish within 1800 s")
    assert found.look_again_at == NOW + timedelta(seconds=10)


def test_each_failed_repair_doubles_the_delay() -> None:
    waits = []
    for count in (1, 2, 3, 30):
        found = settled(running(RENAMED), after_repairs(count))
        assert found.look_again_at is not None
        waits.append((found.look_again_at - NOW).total_seconds())

    assert waits == [10, 20, 40, 300]


def test_a_container_that_stays_disconnected_fails_and_is_retryable() -> None:
    progress = after_repairs(REPAIRS_MAX, "port is taken")
    found = settled(running(CUT_OFF), progress)

    assert (found.actual, found.code) == (Actual.FAILED, DRIFTED)
    assert found.failure is not None
    assert found.failure.reason is FailureReason.NETWORK_ERROR
    assert found.failure.retryable
    assert found.message == (
        "network bridge is not attached; repair failed: port is taken; repaired 3 times without success"
    )
    assert found.look_again_at is not None


def test_a_reachable_container_never_fails_for_its_limits_or_its_name() -> None:
    found = settled(running(RENAMED), after_repairs(99))

    assert (found.actual, found.code) == (Actual.RUNNING, DRIFTED)


def test_a_deviation_does_not_hide_an_unhealthy_status() -> None:
    assert settled(running(UNLIMITED), SHOWN).code == DRIFTED
    unhealthy = running(UNLIMITED, health=Health.UNHEALTHY)
    assert settled(unhealthy, SHOWN).code == "Unhealthy"
    assert settled(running(UNLIMITED), SHOWN).look_again_at is None


def test_an_unmodified_container_resets_the_repair_count() -> None:
    progress = after_repairs(2, "x")

    assert after_settling(progress, settled(running(), progress)).repairs == Repairs()


def test_a_failed_repair_is_reported_and_the_container_keeps_running() -> None:
    failure = Failure(FailureReason.RUNTIME_ERROR, "docker says no")
    progress = after_step(before_repair(SHOWN, now=NOW), Step.REPAIR, failure, now=NOW)

    found = settled(running(RENAMED), progress)

    assert progress.failure is None
    assert found.message == "name is x, created as web; repair failed: docker says no"


def test_a_replacement_that_was_cut_off_after_the_stop_is_not_finished_work() -> None:
    """Its policy lets it exit, so a stop could be mistaken for completion."""
    progress = before_replace(SHOWN, running(CUT_OFF), now=NOW)
    stopped = running(condition=Condition.EXITED, finished_at=NOW)

    assert next_step(an_order(), stopped, progress, now=NOW) == Perform(Step.START)


def test_work_that_ends_after_a_repair_in_place_has_ended() -> None:
    ended = running(condition=Condition.EXITED, finished_at=NOW)

    assert settled(ended, before_repair(SHOWN, now=NOW)).actual is Actual.STOPPED


def test_a_container_to_be_stopped_is_not_repaired_first() -> None:
    order = an_order(desired=Desired.STOPPED)

    assert next_step(order, running(CUT_OFF), SHOWN, now=NOW) == Perform(Step.STOP)
