"""Which of the recorded actions were asked for, in which order."""

from collections.abc import Iterable

from persys.model.action import Action


def select(
    actions: Iterable[Action],
    *,
    workload_id: str = "",
    kind: str = "",
    state: str = "",
    limit: int = 0,
    newest_first: bool = False,
) -> list[Action]:
    """`actions` come oldest first. Empty filters let all pass; a limit keeps the newest, 0 all."""
    found = [
        action
        for action in actions
        if (not workload_id or action.workload_id == workload_id)
        and (not kind or action.kind == kind.lower())
        and (not state or action.state == state.lower())
    ]
    if limit > 0:
        found = found[-limit:]
    return found[::-1] if newest_first else found
