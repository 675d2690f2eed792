"""The diff of an apply: which fields change, and what that does to the running copy.

Fields are compared in the form in which users write them, as nested mappings of texts. A field with its
default value is not in the mapping, so an added field has no text before and a removed one has none after.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from persys.core.placement.requirements import holds_data
from persys.core.reconcile.situation import Decision
from persys.model.placement import Assignment
from persys.model.spec import managed_volumes_of
from persys.model.workload import Desired, Workload


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    before: str  # "": was not set
    after: str  # "": is no longer set


def changed_fields(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[FieldChange, ...]:
    """Every leaf that differs, ordered by path."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return tuple(
        FieldChange(path, old.get(path, ""), new.get(path, ""))
        for path in sorted(old.keys() | new.keys())
        if old.get(path, "") != new.get(path, "")
    )


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


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                # A dot in a key would make two paths ambiguous.
                step = f"[{key}]" if "." in key else f".{key}"
                yield from _leaves(inner, f"{path}{step}" if path else str(key))
        case [Mapping(), *_]:
            for index, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{index}]")
        case list():
            if value:
                yield path, json.dumps(value, ensure_ascii=False)
        case bool():
            yield path, "true" if value else "false"
        case _:
            yield path, str(value)


def _content(workload: Workload) -> tuple[object, ...]:
    return (
        workload.spec,
        workload.resources,
        workload.metadata,
        workload.rules,
        workload.stop_after_seconds,
    )


def _volumes(workload: Workload) -> set[str]:
    return {volume.name for volume in managed_volumes_of(workload.spec)}
