"""Restarts are counted since the revision was created, also those that no inspection has seen."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.compose_status import ServiceContainer, ServicePlan, artefact_of
from persys.core.agent.next_step import after_inspection, before_start, of_repeated_order
from persys.core.agent.progress import Artefact, Condition, Progress
from persys.core.agent.report import RESTART_COUNT, describe
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.workload import Desired, Order

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ORDER = Order(
    WorkloadId("web"),
    WorkloadType.CONTAINER,
    Revision("r2"),
    1,
    Desired.RUNNING,
    ContainerSpec("nginx"),
)


def a_container(
    condition: Condition = Condition.RUNNING, *, count: int = 0, start: int = 0, key: str = "c1"
) -> Artefact:
    """`count`: of Docker; `start`: the number of its last start."""
    return Artefact(
        key,
        "persys-web",
        condition,
        Revision("r2"),
        restart_count=count,
        started_at=NOON + timedelta(seconds=start),
    )


def total(*seen: Artefact, progress: Progress | None = None) -> int:
    """The restarts after these inspections."""
    counted = progress or Progress(launching=True)
    for artefact in seen:
        counted = after_inspection(counted, ORDER, artefact)
    return counted.restart_counter.total


def test_the_first_run_is_not_a_restart() -> None:
    assert total(a_container(), a_container()) == 0


def test_automatic_restarts_between_two_inspections_are_counted() -> None:
    assert total(a_container(), a_container(count=3, start=9)) == 3


def test_automatic_restarts_before_the_first_inspection_are_counted() -> None:
    assert total(a_container(count=2, start=5)) == 2


def test_a_restart_counts_once_it_has_happened() -> None:
    exited = a_container(Condition.RESTARTING, count=1)

    assert total(a_container(), exited) == 0
    assert total(a_container(), exited, a_container(count=1, start=1)) == 1


@pytest.mark.parametrize(("before", "after", "more"), [(0, 0, 1), (5, 0, 1), (5, 2, 3), (2, 2, 3)])
def test_a_manual_start_is_counted_although_docker_counts_from_0_again(
    before: int, after: int, more: int
) -> None:
    seen = a_container(count=before)

    assert total(seen, a_container(count=after, start=1)) == before + more


def test_a_new_container_of_the_same_revision_is_a_restart() -> None:
    assert total(a_container(), a_container(key="c2", count=1, start=2)) == 2


def test_a_container_of_another_revision_is_not_counted() -> None:
    old = replace(a_container(count=7), revision=Revision("r1"))

    assert total(old) == 0
    assert total(old, a_container(key="c2")) == 0


def test_the_start_of_a_stopped_workload_is_not_a_restart() -> None:
    stopped = a_container(Condition.EXITED, count=5)
    progress = before_start(Progress(), stopped, now=NOON)

    assert total(stopped, a_container(start=1), progress=progress) == 0


def test_a_retry_of_the_same_order_keeps_the_count() -> None:
    known = after_inspection(Progress(launching=True), ORDER, a_container(count=2))

    assert of_repeated_order(known).restart_counter == known.restart_counter


def test_a_stack_reports_the_sum_of_its_containers() -> None:
    def a_service(
        name: str, *, count: int, revision: str = "r2", start: int = 0
    ) -> ServiceContainer:
        seen = replace(
            a_container(count=count, start=start, key=f"id-{name}"),
            name=f"app-{name}-1",
            revision=Revision(revision),
        )
        return ServiceContainer(name, seen, RestartPolicy("always"))

    def stack(*members: ServiceContainer) -> Artefact:
        plans = {name: ServicePlan(RestartPolicy("always")) for name in ("db", "web")}
        found = artefact_of("app", members, plans, revision=Revision("r2"))
        assert found is not None
        return found

    # The container of db is unchanged by the new revision: its earlier restarts do not count.
    first = stack(a_service("db", count=9, revision="r1"), a_service("web", count=1))
    second = stack(a_service("db", count=10, revision="r1", start=3), a_service("web", count=1))

    assert total(first) == 1
    assert total(first, second) == 2


def test_every_type_reports_its_restarts_under_the_same_key() -> None:
    machine = replace(a_container(), boots=True, facts={"vm.primary_ip": "10.0.0.2"})
    stack = replace(a_container(), parts=("web=running",))

    for seen in (a_container(), machine, stack):
        assert describe(seen, restarts=2)[RESTART_COUNT] == "2"


@given(st.randoms(use_true_random=False), st.lists(st.booleans(), max_size=30))
def test_restarts_are_never_lost_if_docker_is_not_started_again(
    random: Random, inspections: list[bool]
) -> None:
    """Automatic restarts, inspected at arbitrary times, also while one is pending."""
    progress = Progress(launching=True)
    progress = after_inspection(progress, ORDER, a_container())
    count = start = 0
    for is_seen in inspections:
        count += 1
        if is_seen and random.random() < 0.5:
            pending = a_container(Condition.RESTARTING, count=count, start=start)
            progress = after_inspection(progress, ORDER, pending)
        start += 1
        if is_seen:
            progress = after_inspection(progress, ORDER, a_container(count=count, start=start))
    progress = after_inspection(progress, ORDER, a_container(count=count, start=start))

    assert progress.restart_counter.total == len(inspections)
