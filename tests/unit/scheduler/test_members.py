"""Members are listed by their owner, and every change of one of them is signalled."""

from msgspec.structs import replace

from builders import a_retry, a_status, a_workload, an_assignment
from persys.model.ids import WorkloadId
from persys.model.workload import Membership, Workload
from persys.scheduler.state.cluster import ClusterState


class Recorded:
    def __init__(self) -> None:
        self.changed: list[WorkloadId] = []
        self.cluster = ClusterState(member_changed=lambda one: self.changed.append(one.id))

    def taken(self) -> list[WorkloadId]:
        changed, self.changed = self.changed, []
        return changed


def a_member(name: str = "web-0", *, owner: str = "web", job_id: str = "") -> Workload:
    return replace(a_workload(name), membership=Membership(owner, 0, 0, job_id=job_id))


def test_members_are_listed_by_their_owner() -> None:
    recorded = Recorded()
    recorded.cluster.put_workload(a_member())
    recorded.cluster.put_workload(a_member("web-1"))
    recorded.cluster.put_workload(a_member("api-0", owner="api"))

    assert recorded.cluster.members.of("web") == {"web-0", "web-1"}
    assert recorded.cluster.members.of("db") == set()


def test_a_run_and_a_set_with_the_same_id_have_their_own_members() -> None:
    recorded = Recorded()
    recorded.cluster.put_workload(a_member("one"))
    recorded.cluster.put_workload(a_member("two", job_id="job"))

    assert recorded.cluster.members.of("web") == {"one"}
    assert recorded.cluster.members.of("job/web") == {"two"}


def test_a_deleted_member_is_not_listed() -> None:
    recorded = Recorded()
    recorded.cluster.put_workload(a_member())

    recorded.cluster.drop_workload(WorkloadId("web-0"))

    assert recorded.cluster.members.of("web") == set()


def test_a_member_with_another_owner_is_listed_there_only_and_both_are_signalled() -> None:
    recorded = Recorded()
    recorded.cluster.put_workload(a_member())
    recorded.taken()

    recorded.cluster.put_workload(a_member(owner="api"))

    assert recorded.cluster.members.of("web") == set()
    assert recorded.cluster.members.of("api") == {"web-0"}
    assert recorded.taken() == ["web-0", "web-0"]


def test_every_change_of_a_member_is_signalled_and_a_repetition_is_not() -> None:
    recorded = Recorded()
    cluster, workload = recorded.cluster, a_member()
    assignment, status, retry = an_assignment(name="web-0"), a_status(), a_retry()
    entry = cluster.put_workload(workload)
    assert recorded.taken() == ["web-0"]

    cluster.put_assignment(workload.id, assignment)
    assert recorded.taken() == ["web-0"]
    cluster.put_state(entry, status, None)
    assert recorded.taken() == ["web-0"]
    cluster.put_state(entry, status, retry)
    assert recorded.taken() == ["web-0"]

    cluster.put_workload(workload)
    cluster.put_assignment(workload.id, assignment)
    cluster.put_state(entry, status, retry)
    assert recorded.taken() == []


def test_a_workload_that_is_not_a_member_is_not_signalled() -> None:
    recorded = Recorded()
    entry = recorded.cluster.put_workload(a_workload())
    recorded.cluster.put_assignment(entry.workload.id, an_assignment())
    recorded.cluster.put_state(entry, a_status(), None)
    recorded.cluster.drop_workload(entry.workload.id)

    assert recorded.taken() == []
