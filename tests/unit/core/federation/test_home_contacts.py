"""Which workloads are stopped because their home cluster is silent, and when."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import a_workload
from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER
from persys.core.federation.home_contacts import HomeWorkloads, Overdue
from persys.model.workload import Desired, Workload


def a_guest(name: str = "home--web", *, seconds: str = "20", **changes: Any) -> Workload:
    metadata = {HOME_CLUSTER: "home", HOME_STOP_AFTER: seconds}
    return a_workload(name, **({"metadata": metadata} | changes))


def an_index(*workloads: Workload) -> HomeWorkloads:
    index = HomeWorkloads()
    for workload in workloads:
        index.put(workload)
    return index


def names(index: HomeWorkloads, **contacts: float) -> list[str]:
    return [one.workload_id for one in index.overdue(contacts, since=0, now=100)]


def test_a_workload_is_overdue_when_its_home_has_been_silent_for_its_limit() -> None:
    index = an_index(a_guest())

    assert names(index, home=80.1) == []
    assert names(index, home=80) == ["home--web"]


def test_without_a_contact_the_time_counts_from_the_start_of_leadership() -> None:
    index = an_index(a_guest())

    assert list(index.overdue({}, since=81, now=100)) == []
    assert [one.silent_seconds for one in index.overdue({}, since=80, now=100)] == [20]


def test_a_contact_before_the_leadership_does_not_make_it_overdue() -> None:
    assert list(an_index(a_guest()).overdue({"home": 10}, since=90, now=100)) == []


def test_the_contact_of_another_cluster_does_not_count() -> None:
    assert names(an_index(a_guest()), east=100) == ["home--web"]


def test_the_reason_names_the_home_cluster_and_the_times() -> None:
    (found,) = an_index(a_guest()).overdue({"home": 65.0}, since=0, now=100)

    assert isinstance(found, Overdue)
    assert found.why == (
        "its home cluster home has not been in contact for 35 s; it may run without contact for 20 s"
    )


def test_only_running_workloads_of_other_clusters_with_a_limit_are_watched() -> None:
    index = an_index(
        a_guest("a", desired=Desired.STOPPED),
        a_guest("b", desired=Desired.DELETED),
        a_guest("c", seconds="soon"),
        a_guest("d", metadata={HOME_STOP_AFTER: "20"}),
        a_guest("e", metadata={HOME_CLUSTER: "home"}),
        a_workload("f"),
    )

    assert names(index) == []


def test_a_workload_that_was_stopped_deleted_or_changed_is_no_longer_watched() -> None:
    index = an_index(a_guest("a"), a_guest("b"), a_guest("c"))

    index.put(a_guest("a", desired=Desired.STOPPED))
    index.drop(a_guest("b").id)
    index.drop(a_guest("b").id)
    index.put(a_guest("c", seconds="1000"))

    assert names(index) == []


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), max_size=6),
    st.one_of(st.none(), st.floats(0, 100)),
    st.floats(0, 100),
)
def test_exactly_those_beyond_their_limit_are_overdue(
    limits: dict[str, int], contact: float | None, since: float
) -> None:
    index = an_index(*(a_guest(name, seconds=str(limit)) for name, limit in limits.items()))
    contacts = {} if contact is None else {"home": contact}
    silent = 100 - max(contacts.get("home", since), since)

    found = [one.workload_id for one in index.overdue(contacts, since=since, now=100)]

    assert sorted(found) == sorted(name for name, limit in limits.items() if silent >= limit)
