"""Liveness checks: without faults every workload reaches its desired state, or waits for a valid reason.

Promises 2, 7, 8 and 9, and that the scheduler's memory matches the store.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from persys.core.drift import ORPHANS_MAX
from persys.core.nodes import closed_because
from persys.core.placement.constraints import holds
from persys.core.placement.requirements import facts_of, requirements_of
from persys.core.reconcile.retry import RetryPolicy
from persys.core.reconcile.situation import COMPLETED, satisfies
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment, Resources
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Workload
from persys.scheduler.app import Scheduler
from persys.scheduler.state.runs import run_name
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.fakes.docker import Container
from persys.store import keys

Copies = dict[WorkloadId, list[tuple[NodeId, Container]]]

# Of what a node reports about a workload, with room for what the scheduler adds.
TEXT_CHARACTERS_MAX = 5_000
METADATA_MAX = 32


def copies_of(live: dict[NodeId, list[Container]]) -> Copies:
    found: Copies = {}
    for node_id, containers in live.items():
        for container in containers:
            found.setdefault(container.workload_id, []).append((node_id, container))
    return found


def unsettled(
    mirror: StoreMirror,
    live: dict[NodeId, list[Container]],
    *,
    ignored: frozenset[WorkloadId] = frozenset(),
) -> Iterator[str]:
    """Workloads that have not converged, one line each. `ignored`: another cluster retries them."""
    orphans = mirror.orphans()
    counts = Counter(node_id for node_id, _ in orphans)
    copies = copies_of(live)
    for found in copies.values():
        found[:] = [one for one in found if (one[0], one[1].workload_id) not in orphans]
    for _, workload in sorted(mirror.workloads.items()):
        if workload.id not in ignored and (problem := _problem(workload, mirror, copies)):
            workload_status = mirror.workload_status(workload.id)
            shown = (
                f"{workload_status.status} {workload_status.code} {workload_status.message!r}"
                if workload_status
                else "no status"
            )
            yield f"{workload.id} ({workload.desired} {workload.revision}): {problem}; {shown}"
    for workload_id, found in sorted(copies.items()):
        nodes = [node_id for node_id, _ in found if counts[node_id] < ORPHANS_MAX]
        if nodes and mirror.workload(workload_id) is None:
            yield f"{workload_id} is deleted and runs on {', '.join(nodes)}"
    for key in sorted(mirror.tombstones):
        yield f"{key} still exists"


def _problem(workload: Workload, mirror: StoreMirror, copies: Copies) -> str:
    workload_status, bound = mirror.workload_status(workload.id), mirror.assignment(workload.id)
    found = copies.get(workload.id, [])
    if workload.desired is Desired.DELETED:
        return "is still being deleted"
    if workload_status is None:
        return "has no status"
    if len(found) > 1:
        return f"runs on {', '.join(node for node, _ in found)}"
    if is_retried_slowly(mirror, workload.id):
        return ""  # it fails and is retried until it is deleted
    if workload_status.status is Status.FAILED:
        return _why_failed(workload, mirror, workload_status, found)
    if workload_status.code == "Unplaceable":
        return _why_waiting(workload, mirror, bound)
    if not satisfies(workload_status, workload):
        return "is neither in its desired state nor failed nor waiting"
    if workload.desired is Desired.STOPPED or workload_status.code == COMPLETED:
        return "runs, but its status is not running" if found else ""
    if not found:
        return "has status running, but does not run"
    node_id, container = found[0]
    if bound is None or bound.node_id != node_id:
        return f"runs on {node_id}, where it is not assigned"
    if container.revision != workload.revision:
        return f"runs at {container.revision}"
    return ""


def is_retried_slowly(mirror: StoreMirror, workload_id: WorkloadId) -> bool:
    retry = mirror.retry(workload_id)
    return (
        retry is not None
        and retry.next_at is not None
        and retry.attempts >= RetryPolicy().attempts_max
    )


def _why_failed(
    workload: Workload,
    mirror: StoreMirror,
    workload_status: WorkloadStatus,
    found: list[tuple[NodeId, Container]],
) -> str:
    retry = mirror.retry(workload.id)
    if workload_status.failure is None:
        return "failed without a reason"
    for node_id, container in found:
        if container.revision == workload.revision and not container.exits_alone:
            return f"has status failed, but runs on {node_id}"
    if retry is None or retry.next_at is not None:
        return "failed, and its next attempt is still to come"
    return ""


def _why_waiting(workload: Workload, mirror: StoreMirror, bound: Assignment | None) -> str:
    if any(orphan == workload.id for _, orphan in mirror.orphans()):
        return ""  # it waits for the node with its data, until the operator decides on the orphan
    needs = requirements_of(workload)
    for node in mirror.nodes.values():
        if closed_because(node) or (bound is not None and bound.node_id != node.id):
            continue
        if not all(holds(constraint, facts_of(node)) for constraint in workload.rules.constraints):
            continue
        if node.capabilities.tier:
            continue  # its capacity is that of another cluster, which may be too fragmented
        if any(crowded == node.id for crowded, _ in mirror.orphans()):
            continue  # orphans use an unknown amount of resources
        held = {
            other: hold for other, hold in mirror.holds(node.id).items() if other != workload.id
        }
        free = node.capabilities.allocatable
        for hold in held.values():
            free = free - hold.reserved
        taken = {port for hold in held.values() for port in hold.host_ports}
        if needs.resources.fits_in(free) and not (needs.host_ports & taken):
            return f"waits, but {node.id} has capacity: {free}"
    return ""


def oversized(scheduler: Scheduler) -> str:
    """What the scheduler holds from a node's report beyond the limits of reports; "" if nothing."""
    for workload_id, entry in sorted(scheduler.cluster.workloads.items()):
        for held in (entry.observation, entry.workload_status):
            if held is None:
                continue
            longest = max(map(len, (held.message, *held.metadata, *held.metadata.values())))
            if longest > TEXT_CHARACTERS_MAX or len(held.metadata) > METADATA_MAX:
                text = f"{workload_id} has a text of {longest} characters"
                return f"{text} and {len(held.metadata)} entries of metadata in memory"
    return ""


def differences(mirror: StoreMirror, scheduler: Scheduler) -> Iterator[str]:
    """Differences between the scheduler's memory and the store."""
    cluster = scheduler.cluster
    stored = {workload.id for workload in mirror.workloads.values()}
    if stored != set(cluster.workloads):
        yield f"memory and store disagree on {sorted(stored ^ set(cluster.workloads))}"
        return
    for workload_id, entry in sorted(cluster.workloads.items()):
        remembered = (entry.workload, entry.assignment, entry.workload_status, entry.retry)
        recorded = (
            mirror.workload(workload_id),
            mirror.assignment(workload_id),
            mirror.workload_status(workload_id),
            mirror.retry(workload_id),
        )
        for mine, theirs in zip(remembered, recorded, strict=True):
            if mine != theirs:
                yield f"{workload_id}: memory has {mine}, the store has {theirs}"
    yield from _owner_differences(mirror, scheduler)
    for node_id, slot in sorted(cluster.node_index.slots.items()):
        held = sum((hold.reserved for hold in mirror.holds(node_id).values()), Resources())
        if slot.free != slot.allocatable - held:
            yield f"{node_id} has {slot.free} free in memory, {slot.allocatable - held} by the store"


def _owner_differences(mirror: StoreMirror, scheduler: Scheduler) -> Iterator[str]:
    """Of sets and jobs."""
    cluster = scheduler.cluster
    remembered: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
        (keys.SETS, cluster.sets, mirror.sets),
        (keys.SET_REVISIONS, cluster.set_revisions, mirror.set_revisions),
        (keys.JOBS, cluster.jobs, mirror.jobs),
        (keys.RUNS, {run_name(run): run for run in cluster.runs.all()}, mirror.runs),
    )
    for prefix, mine, theirs in remembered:
        for key in sorted({*theirs, *(f"{prefix}{name}" for name in mine)}):
            memory, stored = mine.get(key.removeprefix(prefix)), theirs.get(key)
            if memory != stored:
                yield f"{key}: memory has {memory}, the store has {stored}"
