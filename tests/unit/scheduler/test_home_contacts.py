"""A workload is stopped only if its home cluster is still silent when the stop is decided."""

from collections.abc import Callable
from typing import Any, cast

from builders import a_workload
from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER
from persys.core.intent.apply import Accepted, Unchanged
from persys.infra.clock import SystemClock
from persys.model.workload import Desired, Workload
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.membership.home_contacts import HOMES_MAX, HomeContacts
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.state.cluster import ClusterState

Transition = Callable[[Workload | None], Accepted | Unchanged]


class Submitted:
    """Decides on the intent that it has, after `before` has run, like a reconciler behind a lock."""

    def __init__(self, workload: Workload, before: Callable[[], None]) -> None:
        self.workload = workload
        self.before = before
        self.outcomes: list[Accepted | Unchanged] = []

    async def submit(self, _name: str, transition: Transition, *, extra_writes: Any) -> Workload:
        self.before()
        outcome = transition(self.workload)
        extra_writes(outcome, Transaction(done=lambda: None, events=[]))
        self.outcomes.append(outcome)
        return outcome.workload


class Clock(SystemClock):
    seconds = 0.0

    def __init__(self) -> None:
        super().__init__(monotonic=lambda: self.seconds)


def a_guest(desired: Desired = Desired.RUNNING) -> Workload:
    metadata = {HOME_CLUSTER: "home", HOME_STOP_AFTER: "20"}
    return a_workload("home--web", desired=desired, metadata=metadata)


async def outcome_of(
    guest: Workload, before: Callable[[HomeContacts], None]
) -> Accepted | Unchanged:
    """The outcome of a stop that was found to be due before `before`, and is decided on `guest`."""
    clock, cluster = Clock(), ClusterState()
    cluster.put_workload(a_guest())
    reconciler = Submitted(guest, lambda: before(contacts))
    contacts = HomeContacts(
        cluster, cast("Reconciler", reconciler), ModeTracker(clock, on_normal=lambda: None), clock
    )
    clock.seconds = 21
    assert await contacts._stop_all(contacts._due())
    return reconciler.outcomes[0]


async def test_a_contact_that_arrives_in_between_prevents_the_stop() -> None:
    assert isinstance(
        await outcome_of(a_guest(), lambda contacts: contacts.note("home")), Unchanged
    )


async def test_an_intent_that_changed_in_between_is_not_changed_again() -> None:
    assert isinstance(await outcome_of(a_guest(Desired.STOPPED), lambda _: None), Unchanged)
    assert isinstance(await outcome_of(a_workload("home--web"), lambda _: None), Unchanged)


async def test_the_number_of_clusters_that_name_themselves_is_bounded() -> None:
    clock = Clock()
    contacts = HomeContacts(
        ClusterState(),
        cast("Reconciler", None),
        ModeTracker(clock, on_normal=lambda: None),
        clock,
    )
    for number in range(HOMES_MAX + 5):
        contacts.note(f"c{number}")
        contacts.note("home")

    assert len(contacts._contacted_at) == HOMES_MAX
    assert "home" in contacts._contacted_at
