"""The diff of an apply: its action, and what it does to the running copy."""

from persys.core.placement.requirements import holds_data
from persys.core.reconcile.situation import Decision
from persys.model.placement import Assignment
from persys.model.spec import managed_volumes_of
from persys.model.workload import Desired, Workload


def action_of(old: Workload | None, new: Workload) -> str:
    """The action of the apply, in the words of the API contract."""
    if old is None:
        return "create"
    if new.desired is Desired.DELETED:
        return "none" if old.desired is Desired.DELETED else "delete"
    if old.revision != new.revision or _content(old) != _content(new):
        return "update"
    if old.desired is not new.desired:
        return "start" if new.desired is Desired.RUNNING else "stop"
    return "none"


def displaced(
    old: Workload | None, held: Assignment | None, new: Workload, decision: Decision
) -> tuple[str, ...]:
    """How the change affects the current copy, its node and its data."""
    if old is None or held is None:
        return ()
    effects: list[str] = []
    node_id, after = held.node_id, decision.assignment
    runs = old.desired is Desired.RUNNING
    if new.desired is Desired.DELETED:
        effects.append(f"the copy on {node_id} is removed")
    elif after is None or after.node_id != node_id:
        goes = f"moves from {node_id} to {after.node_id}" if after else f"leaves {node_id}"
        effects.append(f"{goes}; the copy on {node_id} is removed")
        if holds_data(old):
            effects.append(f"its data stays on {node_id}")
    elif decision.waits_for_capacity:
        effects.append(f"the copy on {node_id} is unchanged until there is capacity")
    elif new.desired is Desired.STOPPED and runs:
        effects.append(f"the copy on {node_id} is stopped")
    elif runs and old.revision != new.revision:
        effects.append(f"the copy on {node_id} is stopped and recreated")
    effects += [
        f"volume {name} is no longer mounted" for name in sorted(_volumes(old) - _volumes(new))
    ]
    return tuple(effects)


def _content(workload: Workload) -> tuple[object, ...]:
    return (
        workload.spec,
        workload.resources,
        workload.metadata,
        workload.rules,
        workload.stop_after_seconds,
        workload.networks,
    )


def _volumes(workload: Workload) -> set[str]:
    return {volume.name for volume in managed_volumes_of(workload.spec)}
