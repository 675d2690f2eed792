"""Describes the copies of a workload on nodes to which it is not assigned, and how to resolve them."""

from collections.abc import Iterable

from persys.core.situation import Copy
from persys.model.ids import WorkloadId

SHOWN_MAX = 20


def described(workload_id: WorkloadId, copies: Iterable[Copy]) -> list[str]:
    lines = [_line(workload_id, copy) for copy in copies]
    if len(lines) > SHOWN_MAX:
        return [*lines[:SHOWN_MAX], f"and {len(lines) - SHOWN_MAX} more"]
    return lines


def _line(workload_id: WorkloadId, copy: Copy) -> str:
    node_id = copy.node_id
    if copy.doomed:
        return _old_copy(copy)
    commands = (
        f"`persysctl orphans get {node_id} {workload_id}` shows it, "
        f"`persysctl orphans delete {node_id} {workload_id}` removes it"
    )
    if copy.counts:
        return f"{node_id}: an orphan with epoch {copy.epoch}; {commands}"
    return (
        f"{node_id}: the node reports a copy with epoch {copy.epoch} without proof of assignment; "
        f"it is ignored; {commands}"
    )


def _old_copy(copy: Copy) -> str:
    line = f"{copy.node_id}: an old copy with epoch {copy.epoch}, which is being removed"
    if not copy.lost:
        return line
    if not copy.may_live:
        return f"{line} when the node returns; it does not run"
    return (
        f"{line} when the node returns; if the machine does not return: "
        f"`persysctl node confirm-dead {copy.node_id}`"
    )
