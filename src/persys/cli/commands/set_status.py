"""Texts about a set: its phase, its counts, what each member is doing, and the next command to run."""

from collections.abc import Mapping
from datetime import datetime

from persys.cli.framework.ages import short_duration, timestamp
from persys.cli.framework.live import LiveState
from persys.wire.gen.control.v1.control_pb2 import MemberView, SetView, UpdatePolicy

STEADY = "Steady"
ROLLING = "Rolling"
CANARY = "Canary"
ROLLING_BACK = "RollingBack"
PAUSED = "Paused"
DELETING = "Deleting"
_MEMBERS_SHOWN_MAX = 20
_DONE = frozenset({"healthy", "stopped"})


def counts_text(view: SetView) -> str:
    wanted = view.member_count_wanted
    parts = [f"{view.healthy_count} of {wanted} healthy"]
    if view.phase != STEADY or view.updated_count != wanted:
        parts.insert(0, f"{view.updated_count} of {wanted} updated")
    return ", ".join(parts)


def revision_text(view: SetView) -> str:
    """The target revision, with the stable one while they differ."""
    if view.target_revision == view.stable_revision or not view.stable_revision:
        return str(view.target_revision)
    return f"{view.stable_revision} -> {view.target_revision}"


def _min_healthy_seconds(policy: UpdatePolicy) -> int:
    if policy.HasField("min_healthy_seconds"):
        return policy.min_healthy_seconds
    from persys.model.sets import UpdatePolicy as Defaults  # start-up time

    return Defaults().min_healthy_seconds


def live_states(
    view: SetView, steps: Mapping[str, LiveState], now: datetime
) -> dict[str, LiveState]:
    """One line for the set, and one per member that is not finished. `steps` are from its workloads."""
    moving = members_in_progress(view, now)
    states = {
        member.workload_id: _member_state(member, view, steps.get(member.workload_id), now)
        for member in moving[:_MEMBERS_SHOWN_MAX]
    }
    hidden = len(moving) - len(states)
    more = f", {hidden} more members in progress" if hidden else ""
    return {view.spec.set_id: LiveState(view.phase, counts_text(view) + more), **states}


def members_in_progress(view: SetView, now: datetime) -> list[MemberView]:
    """Members that are not healthy, and updated ones that have not passed their gate."""
    return [
        member
        for member in view.members
        if member.health not in _DONE or _gate(member, view, now) is not None
    ]


def _member_state(
    member: MemberView, view: SetView, step: LiveState | None, now: datetime
) -> LiveState:
    if (gate := _gate(member, view, now)) is not None:
        return gate
    if step is not None and member.health == "starting":
        return step
    return LiveState(member.health or member.status, member.reason)


def _gate(member: MemberView, view: SetView, now: datetime) -> LiveState | None:
    """Its time of being healthy, while a rollout waits for it."""
    since = timestamp(member, "healthy_since")
    if view.phase == STEADY or member.revision != view.target_revision:
        return None
    if member.health != "healthy" or since is None:
        return None
    needed = _min_healthy_seconds(view.spec.update)
    healthy = max(0.0, (now - since).total_seconds())
    if healthy >= needed:
        return None
    detail = f"healthy for {short_duration(healthy)} of {needed}s"
    return LiveState("gate", detail, healthy / needed, ticks=True)


def next_command(view: SetView) -> str:
    """One sentence that names the next command; empty for a set that needs none."""
    name = view.spec.set_id
    match view.phase:
        case "Paused" if not view.stable_revision:
            return (
                f"show its members with `persysctl rollout status {name}`, "
                "then correct the file and apply it again"
            )
        case "Paused":
            return (
                f"go back with `persysctl rollout undo {name}`, or continue with "
                f"`persysctl rollout resume {name}`"
            )
        case "Canary":
            return f"update the other members with `persysctl rollout promote {name}`"
        case "Rolling" | "RollingBack":
            return f"follow it with `persysctl rollout status {name} --watch`"
        case _:
            return ""
