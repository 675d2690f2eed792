"""Which workloads are members of a set, and which numbers its new members cannot have."""

from msgspec.structs import replace

from builders import NOON, a_workload
from persys.infra.clock import SystemClock
from persys.model.ids import WorkloadId
from persys.model.sets import Phase, Rollout, SetId, WorkloadSet
from persys.model.workload import Membership, Workload
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.state.cluster import ClusterState

WEB = SetId("web")


def a_member(number: int, name: str = "") -> Workload:
    workload = a_workload(name or f"web-{number}")
    return replace(workload, membership=Membership("web", number, number))


def a_set(replicas: int = 1) -> WorkloadSet:
    rollout = Rollout(Phase.ROLLING, started_at=NOON)
    return WorkloadSet(WEB, replicas, 1, NOON, NOON, rollout=rollout)


def states_of(*workloads: Workload) -> tuple[ClusterState, MemberStates]:
    cluster = ClusterState()
    for workload in workloads:
        cluster.put_workload(workload)
    return cluster, MemberStates(cluster, SystemClock())


def test_a_workload_with_the_membership_of_another_id_is_not_a_member() -> None:
    _, states = states_of(a_member(0), a_member(1, "db"))

    assert [member.workload_id for member in states.members(WEB)] == [WorkloadId("web-0")]


def test_ids_of_workloads_and_sets_are_taken() -> None:
    cluster, states = states_of(a_workload("web-1"))
    cluster.sets["web-3"] = a_set()

    assert states.situation(a_set(replicas=5)).taken_numbers == {1, 3}


def test_the_numbers_that_a_set_can_need_are_checked() -> None:
    _, states = states_of(a_workload("web-2500"), *map(a_member, range(2_400)))

    assert states.situation(a_set(replicas=10_000)).taken_numbers == {2500}
    assert states.situation(a_set(replicas=40)).taken_numbers == set()


def test_a_complete_steady_set_gets_no_new_member() -> None:
    _, states = states_of(a_workload("web-1"), a_member(0))

    steady = replace(a_set(), rollout=Rollout())

    assert states.situation(steady).taken_numbers == set()
