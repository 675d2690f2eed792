"""Every record type, by the table: it is stored, loaded, followed, kept in snapshots and rebuilds.

A new type fails here until it has an example, and mypy until it has all its columns.
"""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from builders import NOON, a_status, a_workload, an_assignment
from examples import times
from persys.core.recovery.merge import NodeReport, Recorded, merge
from persys.errors import InvalidError
from persys.model.action import Action, ActionKind, ActionState, History, HistoryEntry
from persys.model.event import Event, EventKind
from persys.model.identity import Role, Token
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.job import Job, JobId, Overlap, Run, RunId, RunMember, Schedule
from persys.model.node import Capabilities, Lease, Node, RemovedNode
from persys.model.nodepool import (
    Machine,
    MachineSize,
    MachineState,
    NodePool,
    PoolId,
    Provisioning,
)
from persys.model.placement import Assignment, EpochCounter, Resources, Tombstone
from persys.model.secret import Secret, SecretVersion
from persys.model.service import Selector
from persys.model.sets import (
    Phase,
    Rollout,
    ScalePolicy,
    SetId,
    SetRevision,
    Template,
    WorkloadSet,
)
from persys.model.status import Drift, DriftType, Retry
from persys.model.workload import Suggestion, SuggestionDecision
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.records import RECORDS, SINGLE_KEYS, RecordType, Unreadable, type_of
from persys.scheduler.state.sync import encoded, follow, in_snapshot, load, rebuilt
from persys.sim.checks.store_mirror import StoreMirror
from persys.store import keys
from persys.store.port import VALUE_BYTES_MAX, Record, Snapshot, Unit, WatchEvent
from persys.wire.stored import records
from service_builders import a_service
from strategies import values_of

N1, WEB = NodeId("n1"), WorkloadId("web")
DAY = timedelta(days=1)

# One record of each type, which hang together: a workload that runs on a node, and what there is about both.
EXAMPLES: dict[str, tuple[str, Struct]] = {
    "node": (keys.node_key(N1), Node(N1, Capabilities(4000, 8000), "h:1", NOON)),
    "lease": (keys.node_lease_key(N1), Lease(N1, NOON, timedelta(seconds=30))),
    "service": (
        keys.service_key("web"),
        a_service(Selector("web", weight=9), Selector(labels={"app": "web"}), hosts=("a.example",)),
    ),
    "workload": (keys.workload_key(WEB), a_workload("web")),
    "assignment": (keys.assignment_key(WEB), an_assignment("n1")),
    "belief": (keys.status_key(WEB), a_status(code="Completed")),
    "retry": (keys.retry_key(WEB), Retry(WEB, Revision("r1"), 1, NOON)),
    "reconciliation": (
        keys.history_key(WEB),
        History(
            WEB,
            (
                HistoryEntry(
                    N1,
                    NOON,
                    Action(ActionId("t1"), WEB, ActionKind.APPLY, ActionState.RUNNING, NOON),
                ),
            ),
        ),
    ),
    "tombstone": (
        keys.tombstone_key(N1, WorkloadId("old")),
        Tombstone(an_assignment("n1", name="old"), NOON),
    ),
    "drift": (
        keys.drift_key(N1, WorkloadId("stray"), DriftType.ORPHAN),
        Drift(N1, WorkloadId("stray"), DriftType.ORPHAN, NOON),
    ),
    "epoch_counter": (keys.EPOCHS, EpochCounter(10_000)),
    "removal": (keys.removed_key(NodeId("n9")), RemovedNode(NodeId("n9"), NOON)),
    "token": (
        keys.token_key("t1"),
        Token("t1", "ann", Role.VIEWER, frozenset(), "hash", NOON, "ann", NOON + DAY),
    ),
    "secret": (keys.secret_key("db"), Secret("db", (SecretVersion(1, b"\x00\xff", "k", NOON),))),
    "suggestion": (keys.suggestion_key("s1"), SuggestionDecision(Suggestion("s1"), True, NOON)),
    "node_pool": (
        keys.node_pool_key("burst"),
        NodePool(
            PoolId("burst"),
            "exec",
            sizes=(MachineSize("small", Resources(2000, 4000, 40), 0.1),),
            max_machines=3,
            spend_per_hour_max=1.0,
            created_at=NOON,
            provisioning=Provisioning(created_count=1, retry_at=NOON),
        ),
    ),
    "machine": (
        keys.machine_key("default-burst-1"),
        Machine(
            PoolId("burst"),
            1,
            "default-burst-1",
            "small",
            0.1,
            MachineState.BOOTING,
            created_at=NOON,
            state_since=NOON,
            provider_id="i-1",
        ),
    ),
    "set": (
        keys.set_key("web"),
        WorkloadSet(
            SetId("web"),
            3,
            2,
            NOON,
            NOON,
            scale=ScalePolicy(1, 5, cpu_percent=70),
            stable=1,
            revisions=(1, 2),
            rollout=Rollout(Phase.ROLLING, started_at=NOON, progressed_at=NOON),
            homes={WorkloadId("web-3"): NodeId("n1")},
        ),
    ),
    "set_revision": (
        keys.set_revision_key("web", 2),
        SetRevision(
            SetId("web"), 2, Template(a_workload("web").spec, Revision("r2")), NOON, "admin/ann"
        ),
    ),
    "job": (
        keys.job_key("backup"),
        Job(
            JobId("backup"),
            Template(a_workload("backup").spec, Revision("r1")),
            NOON,
            NOON,
            completions=9,
            fail_on=(3, 4),
            schedule=Schedule("0 2 * * *", "Europe/Berlin", Overlap.REPLACE),
            last_scheduled_at=NOON,
        ),
    ),
    "run": (
        keys.run_key("backup", "backup-202506011200"),
        Run(
            RunId("backup-202506011200"),
            JobId("backup"),
            Template(a_workload("backup").spec, Revision("r1")),
            NOON,
            completions=9,
            scheduled_at=NOON,
            next_index=5,
            succeeded=((0, 2),),
            failed=((3, 3),),
            members=(RunMember(4, 2, created=True, retry_at=NOON, reason="exited with 1"),),
        ),
    ),
    "event": (keys.event_key(NOON, 7), Event(NOON, EventKind.NODE_READY, node_id="n1")),
}
STORED = {key: records.encode(record) for key, record in EXAMPLES.values()}
every_type = pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.name)


def a_snapshot(stored: dict[str, bytes]) -> Snapshot:
    return Snapshot(1, tuple(Record(key, stored[key], 1) for key in sorted(stored)))


def loaded(stored: dict[str, bytes]) -> ClusterState:
    cluster = ClusterState()
    load(cluster, a_snapshot(stored), lease_until=1.0, now=NOON)
    return cluster


def in_memory(cluster: ClusterState) -> dict[str, Struct]:
    return {key: record for kind in RECORDS for key, record in kind.in_memory(cluster)}


def recovered(base: ClusterState) -> dict[str, bytes]:
    """The records that a recovery writes when every node responds and matches the records."""
    recorded = Recorded(
        {node_id: member.node for node_id, member in base.nodes.items()},
        {workload_id: entry.workload for workload_id, entry in base.workloads.items()},
        base.assignments_of(base.workloads),
        tuple(one for stale in base.tombstones.values() for one in stale.values()),
    )
    reports = [NodeReport(member.node) for member in base.nodes.values()]
    return rebuilt(merge(recorded, reports, epochs_used=10_000, now=NOON), base)


def test_every_type_has_an_example() -> None:
    assert list(EXAMPLES) == [kind.name for kind in RECORDS]


@every_type
def test_the_type_is_found_by_the_key(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]

    assert type_of(key) is kind


@pytest.mark.parametrize(
    "key", ["", "/", "/nodes", "/nodesx/a", "/skydns/a", "/cluster", "/leader"]
)
def test_other_keys_are_not_records(key: str) -> None:
    assert type_of(key) is None


@every_type
def test_a_record_is_loaded_into_memory(kind: RecordType) -> None:
    key, record = EXAMPLES[kind.name]

    held = in_memory(loaded(STORED))

    assert held.get(key) == (record if kind.struct is not Lease else None)


@every_type
def test_a_record_is_followed_into_memory_and_out_of_it(kind: RecordType) -> None:
    key, record = EXAMPLES[kind.name]
    others = {other: value for other, value in STORED.items() if other != key}
    cluster = loaded(others)

    follow(cluster, [WatchEvent(key, STORED[key], 2)], lease_until=1.0, now=NOON)
    there = in_memory(cluster)
    follow(cluster, [WatchEvent(key, None, 3)], lease_until=1.0, now=NOON)

    assert there == in_memory(loaded(STORED)) or kind.name == "workload"
    assert there.get(key) == (record if kind.struct is not Lease else None)
    assert key not in in_memory(cluster)


@every_type
def test_a_deleted_record_is_absent_after_a_reload(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]
    cluster = loaded(STORED)

    others = {other: value for other, value in STORED.items() if other != key}
    load(cluster, a_snapshot(others), lease_until=1.0, now=NOON)

    assert in_memory(cluster) == in_memory(loaded(others))
    assert key not in in_memory(cluster)


@every_type
def test_a_snapshot_from_memory_equals_a_snapshot_from_the_store(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]

    taken = encoded(loaded(STORED))

    assert taken.get(key) == (STORED[key] if in_snapshot(key) else None)


@every_type
def test_a_recovery_keeps_the_record(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]

    kept = recovered(loaded(STORED))

    if kind.name in ("assignment", "epoch_counter"):  # they get epochs above all that were used
        assert key in kept
        return
    assert kept.get(key) == (STORED[key] if kind.in_snapshot else None)


def test_a_recovery_hands_out_new_epochs_and_the_counter_is_above_them() -> None:
    kept = recovered(loaded(STORED))

    bound = records.decode(kept[keys.assignment_key(WEB)], Assignment)
    counter = records.decode(kept[keys.EPOCHS], EpochCounter)
    assert 10_000 < bound.epoch <= counter.reserved_until


@every_type
def test_the_simulation_reads_the_record(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]

    assert StoreMirror().take([Unit(puts={key: STORED[key]})], 0.0) == {key}


@every_type
def test_a_record_under_the_key_of_another_is_quarantined(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]
    elsewhere = f"{kind.prefix}other{key.removeprefix(kind.prefix)}"

    cluster = loaded({**STORED, elsewhere: STORED[key]})

    held = in_memory(cluster)
    held.pop(keys.removed_key(NodeId("othern9")), None)  # assumed while the record is unreadable
    assert [one.key for one in cluster.quarantined] == [elsewhere]
    assert held == in_memory(loaded(STORED))


@every_type
def test_a_record_of_a_newer_schema_is_quarantined_and_never_replaced(kind: RecordType) -> None:
    key, _ = EXAMPLES[kind.name]

    cluster = loaded({**STORED, key: b'{"schema":99,"id":"web"}'})

    assert [(one.key, one.replaceable) for one in cluster.quarantined] == [(key, False)]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_record_is_named_and_everything_else_is_loaded(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(RECORDS))
    key, _ = EXAMPLES[kind.name]
    value = bytearray(STORED[key])
    if data.draw(st.booleans()):
        value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del value[data.draw(st.integers(0, len(value) - 1)) :]
    damaged = {**STORED, key: bytes(value)}

    cluster, fresh = loaded(STORED), loaded(damaged)
    follow(cluster, [WatchEvent(key, bytes(value), 2)], lease_until=1.0, now=NOON)

    named = [(one.key, one.replaceable) for one in fresh.quarantined]
    assert named == [(key, kind.unreadable is Unreadable.REPLACED)]
    assert [one.key for one in cluster.quarantined] == [key]
    expected = in_memory(loaded({other: STORED[other] for other in STORED if other != key}))
    if kind.name == "removal":  # certificates of that node from before are refused all the same
        expected[key] = RemovedNode(NodeId("n9"), NOON)
    assert in_memory(fresh) == expected == in_memory(cluster)


@pytest.mark.parametrize("kind", [*RECORDS, *SINGLE_KEYS], ids=lambda kind: kind.struct.__name__)
def test_every_encodable_record_round_trips(kind: RecordType) -> None:
    @settings(max_examples=times(0.6), suppress_health_check=[HealthCheck.too_slow])
    @given(values_of(kind.struct))
    def check(record: Struct) -> None:
        try:
            stored = records.encode(record)
        except InvalidError:
            return  # refused before anything was changed
        again = records.decode(stored, kind.struct)
        assert again == record
        assert records.encode(again) == stored

    check()


def test_text_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidError, match="cannot be stored"):
        records.encode(RemovedNode(NodeId("\ud800"), NOON))


def test_the_size_limit_of_a_value_allows_a_large_record() -> None:
    workload_status = a_status(message="x" * (VALUE_BYTES_MAX // 2))

    assert len(records.encode(workload_status)) < VALUE_BYTES_MAX
