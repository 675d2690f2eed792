"""The health of members: judged by the intended revision and the present assignment only."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from builders import NOON, a_failure, a_retry, a_status, a_workload, after, an_assignment
from persys.core.agent.health import UNHEALTHY
from persys.core.agent.report import RESTART_COUNT
from persys.core.sets.situation import MemberHealth, MemberState
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.sets import SetId
from persys.model.status import FailureReason, Retry, Status, WorkloadStatus
from persys.model.workload import Desired, Membership, Workload
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.state.cluster import ClusterState

HEALTHY = replace(a_status(), healthy_since=NOON)
STARTING = a_status(Status.PENDING)


class OneMember:
    """web-0 on node n1, and a leader since noon."""

    def __init__(self) -> None:
        self.now: datetime = NOON
        self.cluster = ClusterState(member_changed=self._changed, node_changed=self._node_changed)
        self.states = MemberStates(self.cluster, SystemClock(wall=lambda: self.now))
        self.node = Node(NodeId("n1"), Capabilities(1000, 1000), "", NOON)
        self.cluster.put_node(self.node, lease_until=0.0)
        self.workload = replace(
            a_workload("web-0"), membership=Membership("web", index=0, number=0)
        )
        self.cluster.put_workload(self.workload)
        self.cluster.put_assignment(self.workload.id, an_assignment("n1", name="web-0"))

    def _changed(self, workload: Workload) -> None:
        self.states.member_changed(workload.id)

    def _node_changed(self, node_id: NodeId) -> None:
        self.states.node_changed(node_id)

    def report(self, status: WorkloadStatus, retry: Retry | None = None) -> MemberState:
        entry = self.cluster.workloads[self.workload.id]
        self.cluster.put_state(entry, status, retry)
        return self.state

    def set_node(self, status: NodeStatus) -> MemberState:
        self.cluster.put_node(replace(self.node, status=status))
        return self.state

    def change(self, workload: Workload) -> MemberState:
        self.cluster.put_workload(workload)
        return self.state

    @property
    def state(self) -> MemberState:
        (member,) = self.states.members(SetId("web"))
        return member


def test_a_member_without_a_report_is_starting() -> None:
    assert OneMember().state.health is MemberHealth.STARTING


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (HEALTHY, MemberHealth.HEALTHY),
        (a_status(), MemberHealth.STARTING),  # its check has not passed yet
        (a_status(code=UNHEALTHY), MemberHealth.UNHEALTHY),
        (STARTING, MemberHealth.STARTING),
        (a_status(Status.FAILED, failure=a_failure()), MemberHealth.FAILED),
        (a_status(Status.UNKNOWN, code="NodeLost"), MemberHealth.LOST),
    ],
)
def test_the_health_follows_from_the_status(status: WorkloadStatus, health: MemberHealth) -> None:
    assert OneMember().report(status).health is health


def test_a_status_of_another_revision_is_not_used() -> None:
    failed = a_status(Status.FAILED, revision="r0", failure=a_failure())

    assert OneMember().report(failed).health is MemberHealth.STARTING
    assert OneMember().report(replace(HEALTHY, revision="r0")).healthy_since is None


def test_a_status_of_another_epoch_is_not_used() -> None:
    failed = a_status(Status.FAILED, epoch=7, failure=a_failure())

    assert OneMember().report(failed).health is MemberHealth.STARTING


def test_a_failure_is_final_when_the_scheduler_does_not_try_again() -> None:
    failed = a_status(Status.FAILED, failure=a_failure())
    wrong_image = a_status(
        Status.FAILED, failure=a_failure(FailureReason.IMAGE_NOT_FOUND, retryable=False)
    )

    assert not OneMember().report(failed, a_retry(1)).final
    assert OneMember().report(failed, a_retry(9, None)).final
    assert not OneMember().report(failed, a_retry(9, None, revision="r0")).final
    assert OneMember().report(wrong_image).final


def test_restarts_count_at_one_revision_only() -> None:
    member = OneMember()
    member.report(replace(HEALTHY, metadata={RESTART_COUNT: "1"}))
    again = member.report(replace(HEALTHY, metadata={RESTART_COUNT: "3"}))
    updated = member.change(replace(member.workload, revision=member.workload.revision + "+2"))

    assert (again.restarts, updated.restarts) == (3, 0)


def test_the_health_of_a_member_on_a_lost_node_is_lost() -> None:
    member = OneMember()
    member.report(HEALTHY)

    assert member.set_node(NodeStatus.NOT_READY).health is MemberHealth.LOST


def test_a_member_waits_since_it_was_healthy() -> None:
    member = OneMember()
    member.report(HEALTHY)
    member.now = after(500)

    assert member.report(a_status(code=UNHEALTHY)).waiting_since == after(500)


def test_a_member_whose_node_returns_has_the_full_time_to_become_healthy() -> None:
    """Otherwise a rollout fails because a node was away for longer than the deadline."""
    member = OneMember()
    member.report(STARTING)
    member.set_node(NodeStatus.NOT_READY)
    member.now = after(900)

    returned = member.set_node(NodeStatus.READY)

    assert (returned.health, returned.waiting_since) == (MemberHealth.STARTING, after(900))


def test_a_new_leader_gives_members_the_full_time() -> None:
    member = OneMember()
    member.now = after(900)
    member.states.begin_to_lead()

    assert member.report(STARTING).waiting_since == after(900)


def test_a_deleted_member_is_deleting() -> None:
    member = OneMember()

    deleted = member.change(replace(member.workload, desired=Desired.DELETED))

    assert deleted.health is MemberHealth.DELETING
