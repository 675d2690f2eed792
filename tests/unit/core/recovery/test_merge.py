"""What a merge restores after a loss, and what it leaves out."""

import dataclasses

from msgspec.structs import replace

from builders import N1, N2, NOON, WEB, a_status, a_workload, after, an_assignment
from persys.core.recovery.merge import Merged, NodeReport, Recorded, merge
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Assignment, HostPort, Resources
from persys.model.spec import ContainerSpec, ManagedVolume, Port
from persys.model.status import Actual, Observation, Status
from persys.model.workload import Membership, StoredIntent, Workload

SHOP = WorkloadId("shop")
DATABASE = ContainerSpec("postgres", managed_volumes=(ManagedVolume("data", "/data"),))

USED = 100  # epochs that the cluster has handed out


def a_node(node_id: NodeId) -> Node:
    return Node(node_id, Capabilities(4000, 8192), f"{node_id}:50051", NOON)


def a_report(
    node_id: NodeId, *epochs: int, intent: Workload | None = None, problem: str = ""
) -> NodeReport:
    """A node with one copy of web for each epoch."""
    return NodeReport(
        a_node(node_id),
        [
            Observation(WEB, node_id, Actual.RUNNING, NOON, Revision("r1"), epoch)
            for epoch in epochs
        ],
        [StoredIntent(node_id, intent, epoch) for epoch in epochs if intent is not None],
        problem,
    )


def recorded(workload: Workload, *assignments: Assignment) -> Recorded:
    return Recorded(
        {N1: a_node(N1), N2: a_node(N2)},
        {workload.id: workload},
        {one.workload_id: one for one in assignments},
    )


def binding(merged: Merged) -> tuple[NodeId, int]:
    bound = merged.assignments[WEB]
    return bound.node_id, bound.epoch


def test_workloads_of_agents_are_assigned_where_they_run_with_the_next_epoch() -> None:
    merged = merge(Recorded(), [a_report(N1, 3, intent=a_workload())], epochs_used=USED, now=NOON)

    assert merged.workloads == {WEB: a_workload()}
    assert binding(merged) == (N1, USED + 1)
    assert merged.assignments[WEB].reserved == a_workload().resources
    assert merged.nodes.keys() == {N1}
    assert merged.left_out == []


def test_the_copy_with_the_highest_epoch_wins_over_an_older_record() -> None:
    merged = merge(
        recorded(a_workload(), an_assignment("n1", epoch=3)),
        [a_report(N1), a_report(N2, 5)],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N2, USED + 1)


def test_an_older_copy_without_data_gets_a_tombstone() -> None:
    merged = merge(
        Recorded(),
        [a_report(N1, 3, intent=a_workload()), a_report(N2, 2, intent=a_workload())],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N1, USED + 1)
    (tombstone,) = merged.tombstones
    assert (tombstone.assignment.node_id, tombstone.assignment.epoch) == (N2, USED + 2)


def test_a_copy_of_a_lower_epoch_with_data_is_left_for_the_operator() -> None:
    workload = a_workload(spec=DATABASE)
    merged = merge(
        Recorded(),
        [a_report(N1, 3, intent=workload), a_report(N2, 2, intent=workload)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.tombstones == []
    assert merged.left_out == ["web: an older copy on n2 stays as an orphan"]


def test_a_workload_without_a_stored_intent_is_left_out_and_reported() -> None:
    merged = merge(Recorded(), [a_report(N1, 0)], epochs_used=USED, now=NOON)

    assert merged.workloads == {}
    assert merged.left_out == ["web on n1: its agent has no stored intent; it stays as an orphan"]


def test_an_agent_without_epochs_on_the_node_of_the_record_keeps_its_workload() -> None:
    merged = merge(
        recorded(a_workload(), an_assignment("n1", epoch=3)),
        [a_report(N1, 0), a_report(N2, 0)],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N1, USED + 1)
    assert [one.assignment.node_id for one in merged.tombstones] == [N2]


def test_a_record_is_kept_while_its_node_is_unreachable() -> None:
    merged = merge(
        recorded(a_workload(), an_assignment("n1", epoch=3)),
        [a_report(N1, problem="no route"), a_report(N2, 2)],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N1, USED + 1)
    assert merged.tombstones == []
    assert "node n1 did not respond: no route" in merged.left_out


def test_a_newer_copy_wins_and_the_unreachable_node_gets_a_tombstone() -> None:
    merged = merge(
        recorded(a_workload(), an_assignment("n1", epoch=3)),
        [a_report(N1, problem="no route"), a_report(N2, 5)],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N2, USED + 1)
    assert [one.assignment.node_id for one in merged.tombstones] == [N1]


def test_a_workload_with_data_is_not_started_while_it_may_run_on_an_unreachable_node() -> None:
    merged = merge(
        recorded(a_workload(spec=DATABASE), an_assignment("n1", epoch=3)),
        [a_report(N1), a_report(N2, problem="no route")],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads == {}
    assert "it may run on n2, which did not respond" in merged.left_out[-1]


def test_the_newer_intent_of_record_and_node_wins() -> None:
    newer = a_workload(revision="r2")
    newer = Workload(
        newer.id, newer.spec, newer.revision, created_at=after(50), updated_at=after(60)
    )
    merged = merge(
        recorded(a_workload(), an_assignment()),
        [a_report(N1, 1, intent=newer)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads[WEB].revision == "r2"
    assert merged.workloads[WEB].created_at == NOON


def test_a_revision_whose_spec_is_lost_is_reported() -> None:
    merged = merge(
        recorded(a_workload(revision="r0"), an_assignment()),
        [a_report(N1, 1)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.left_out == ["web: n1 has revision r1, whose spec is lost; it is updated to r0"]


def test_unassigned_workloads_are_restored_unassigned() -> None:
    merged = merge(recorded(a_workload()), [a_report(N1), a_report(N2)], epochs_used=USED, now=NOON)

    assert merged.workloads.keys() == {WorkloadId("web")}
    assert merged.assignments == {}


def test_the_status_on_a_responding_node_is_dropped_unless_completed() -> None:
    merged = merge(
        recorded(a_workload(), an_assignment()),
        [a_report(N1), a_report(N2, problem="no route")],
        epochs_used=USED,
        now=NOON,
    )
    on_silent = merge(
        recorded(a_workload(), an_assignment("n2")),
        [a_report(N1), a_report(N2, problem="no route")],
        epochs_used=USED,
        now=NOON,
    )

    assert not merged.still_holds(a_status(Status.RUNNING))
    assert merged.still_holds(a_status(Status.STOPPED, code="Completed"))
    assert on_silent.still_holds(a_status(Status.RUNNING))


def test_a_copy_keeps_its_reservation_while_a_newer_revision_needs_more() -> None:
    larger = replace(a_workload(), resources=Resources(9000, 256), updated_at=after(60))
    merged = merge(
        recorded(larger, an_assignment()),
        [a_report(N1, 1, intent=a_workload())],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads[WEB] == larger
    assert merged.assignments[WEB].reserved == a_workload().resources


def test_a_running_copy_takes_precedence_over_the_record_of_the_node() -> None:
    """Without capacity it moves to another node; with data it cannot, and is reported."""
    shop = replace(a_workload(), id=SHOP, resources=Resources(3900, 256))
    running = NodeReport(
        a_node(N1),
        [Observation(SHOP, N1, Actual.RUNNING, NOON, Revision("r1"), 1)],
        [StoredIntent(N1, shop, 1)],
    )
    bound = an_assignment(reserved=Resources(200, 256))
    merged = merge(recorded(a_workload(), bound), [running], epochs_used=USED, now=NOON)
    with_data = merge(
        recorded(a_workload(spec=DATABASE), bound), [running], epochs_used=USED, now=NOON
    )

    assert merged.workloads.keys() == {WEB, SHOP}
    assert merged.assignments.keys() == {SHOP}
    assert with_data.workloads.keys() == {SHOP}
    assert with_data.left_out == [
        "web: not enough capacity on n1; it is assigned there, and holds data"
    ]


def test_an_unrecorded_copy_without_capacity_stays_an_orphan() -> None:
    """Found by seed 312: a removed node returned with more workloads than its capacity."""
    shop = a_workload("shop", resources=Resources(3900, 256))
    both = NodeReport(
        a_node(N1),
        [Observation(name, N1, Actual.RUNNING, NOON, Revision("r1"), 1) for name in (SHOP, WEB)],
        [StoredIntent(N1, shop, 1), StoredIntent(N1, a_workload(resources=Resources(200, 256)), 1)],
    )
    booked = Recorded({N1: a_node(N1)}, {SHOP: shop}, {SHOP: an_assignment(name="shop")})

    merged = merge(booked, [both], epochs_used=USED, now=NOON)

    assert merged.workloads.keys() == merged.assignments.keys() == {SHOP}
    assert merged.left_out == ["web: not enough capacity on n1; it stays as an orphan"]


def running_on_n1(*workloads: Workload, cpu: int = 4000) -> NodeReport:
    """n1 with this cpu, and a copy of each workload."""
    return NodeReport(
        replace(a_node(N1), capabilities=Capabilities(cpu, 8192)),
        [Observation(one.id, N1, Actual.RUNNING, NOON, Revision("r1"), 1) for one in workloads],
        [StoredIntent(N1, one, 1) for one in workloads],
    )


def recorded_on_n1(*reserved: tuple[Workload, int]) -> Recorded:
    """Workloads that are assigned to n1, with the cpu that the record reserves."""
    return Recorded(
        {N1: a_node(N1)},
        {one.id: one for one, _ in reserved},
        {one.id: an_assignment(name=one.id, reserved=Resources(cpu, 256)) for one, cpu in reserved},
    )


def reserved_cpu(merged: Merged) -> int:
    held = [*merged.assignments.values(), *(one.assignment for one in merged.tombstones)]
    return sum(one.reserved.cpu_millicores for one in held if one.node_id == N1)


def test_recorded_copies_that_have_grown_since_do_not_exceed_the_capacity() -> None:
    """Found by seed 187: an old snapshot reserved less for a copy, and another one was an orphan."""
    shop = a_workload("shop", resources=Resources(3000, 256))
    web = a_workload(resources=Resources(2000, 256))

    merged = merge(
        recorded_on_n1((shop, 2000), (web, 2000)),
        [running_on_n1(shop, web)],
        epochs_used=USED,
        now=NOON,
    )

    assert reserved_cpu(merged) == 2000
    assert merged.workloads.keys() == {WEB}
    assert merged.left_out == ["shop: not enough capacity on n1; it stays as an orphan"]


def test_a_copy_that_needs_a_reserved_host_port_since_the_record_stays_an_orphan() -> None:
    port = ContainerSpec("nginx", ports=(Port(80, 8080),))
    shop, web = a_workload("shop", spec=port), a_workload(spec=port)
    before = recorded_on_n1((shop, 100), (web, 100))
    bound = replace(before.assignments[WEB], host_ports=frozenset({HostPort(8080, "tcp")}))
    before = dataclasses.replace(before, assignments={**before.assignments, WEB: bound})

    merged = merge(before, [running_on_n1(shop, web)], epochs_used=USED, now=NOON)

    assert merged.assignments.keys() == {WEB}
    assert merged.left_out == ["shop: not enough capacity on n1; it stays as an orphan"]


def test_a_node_that_has_shrunk_since_keeps_its_recorded_copies() -> None:
    shop, web = (a_workload(name, resources=Resources(2000, 256)) for name in ("shop", "web"))

    merged = merge(
        recorded_on_n1((shop, 2000), (web, 2000)),
        [running_on_n1(shop, web, cpu=3000)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.assignments.keys() == {SHOP, WEB}
    assert merged.left_out == []


def test_a_copy_that_is_to_be_removed_gives_way_to_an_assigned_copy() -> None:
    shop = a_workload("shop", resources=Resources(3000, 256))
    web = a_workload(resources=Resources(2000, 256))
    before = recorded_on_n1((shop, 2000), (web, 2000))
    newer = NodeReport(
        a_node(N2),
        [Observation(WEB, N2, Actual.RUNNING, NOON, Revision("r1"), 2)],
        [StoredIntent(N2, web, 2)],
    )

    merged = merge(before, [running_on_n1(shop, web), newer], epochs_used=USED, now=NOON)

    assert {name: one.node_id for name, one in merged.assignments.items()} == {SHOP: N1, WEB: N2}
    assert merged.tombstones == []
    assert merged.left_out == ["web: an older copy on n1 stays as an orphan"]


WITH_SECRET = ContainerSpec("nginx", env={"PASSWORD": "secret://db-password"})


def test_a_workload_with_secrets_named_only_by_a_node_is_left_out() -> None:
    reported = a_workload(spec=WITH_SECRET)
    merged = merge(Recorded(), [a_report(N1, 3, intent=reported)], epochs_used=USED, now=NOON)

    assert merged.workloads == {}
    (line,) = merged.left_out
    assert "only the report of the node refers to secrets db-password" in line


def test_a_workload_with_allowed_secrets_is_restored() -> None:
    reported = a_workload(spec=WITH_SECRET)
    reports = [a_report(N1, 3, intent=reported)]
    merged = merge(Recorded(), reports, allow_secrets=["db-password"], epochs_used=USED, now=NOON)

    assert merged.workloads == {WEB: reported}
    assert merged.left_out == []


def test_secrets_that_the_record_has_are_not_in_doubt() -> None:
    known = a_workload(spec=WITH_SECRET)
    newer = replace(known, updated_at=after(1), metadata={"a": "b"})
    merged = merge(recorded(known), [a_report(N1, 3, intent=newer)], epochs_used=USED, now=NOON)

    assert merged.workloads[WEB].metadata == {"a": "b"}


def test_a_node_cannot_add_a_secret_to_a_workload_that_is_on_record() -> None:
    known = a_workload()
    newer = replace(known, updated_at=after(1), spec=WITH_SECRET)
    merged = merge(recorded(known), [a_report(N1, 3, intent=newer)], epochs_used=USED, now=NOON)

    assert merged.workloads[WEB].spec == known.spec


def test_an_epoch_that_was_never_handed_out_wins_nothing() -> None:
    """Two nodes report a copy; the epoch of one cannot be true."""
    merged = merge(
        recorded(a_workload(), an_assignment("n1", epoch=3)),
        [a_report(N1, 3, intent=a_workload()), a_report(N2, 2**63 - 1, intent=a_workload())],
        epochs_used=USED,
        now=NOON,
    )

    assert binding(merged) == (N1, USED + 1)
    assert merged.last_epoch() < USED + 10


def a_member(name: str = "web") -> Workload:
    """Of a run of a job."""
    owner = Membership("backup-1", 0, 0, job_id="backup")
    return replace(a_workload(name), membership=owner)


def test_a_member_of_a_job_that_no_node_reports_is_not_ordered_again() -> None:
    merged = merge(
        recorded(a_member(), an_assignment("n1", epoch=3)),
        [a_report(N1), a_report(N2)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads == {}
    assert merged.assignments == {}
    assert merged.tombstones == []
    assert merged.left_out == [
        "run backup-1: 1 members that no node reports; they may have run, so they are not started again"
    ]


def test_a_member_of_a_job_on_a_silent_node_is_removed_when_the_node_returns() -> None:
    merged = merge(
        recorded(a_member(), an_assignment("n1", epoch=3)),
        [a_report(N1, problem="no answer"), a_report(N2)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads == {}
    (tombstone,) = merged.tombstones
    assert tombstone.assignment.node_id == N1
    assert tombstone.assignment.epoch > USED


def test_a_member_of_a_job_that_a_node_reports_stays_there() -> None:
    merged = merge(
        recorded(a_member(), an_assignment("n1", epoch=3)),
        [a_report(N1, 3)],
        epochs_used=USED,
        now=NOON,
    )

    assert merged.workloads == {WEB: a_member()}
    assert binding(merged) == (N1, USED + 1)
