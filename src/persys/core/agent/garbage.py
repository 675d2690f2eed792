"""Decides what an agent may remove from its node: only items with its own labels that no workload owns.

    zombie   its workload was deleted here, but the item still exists
    stray    its workload is not in the journal, although the scheduler was connected for the whole time;
             removed only if it does not run, and its data stays
    image    pulled by this agent and unused for a long time
    action   an entry of the action history

Ages count from when the agent first saw that an item has no owner, not from its creation. A journal that was
lost a minute ago makes everything a stray, and none of it may be removed.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.model.action import Action, ActionState
from persys.model.ids import ActionId, WorkloadId

ENDED = (ActionState.COMPLETED, ActionState.FAILED)


class Kind(StrEnum):
    CONTAINER = "container"
    VM = "machine"
    NETWORK = "network"
    IMAGE = "image"
    FILES = "files"  # of a container; counts as running if the container may exist
    ACTIONS = "actions"
    WORKLOAD = "workload"  # in a federated cluster; counts as running if it may have data
    SECRET = "secret"  # in a federated cluster  # noqa: S105


class Item(Struct, frozen=True):
    """An item on the node with the labels of this agent."""

    kind: Kind
    id: str
    name: str
    workload_id: WorkloadId = WorkloadId("")
    running: bool = False


class ImageUse(Struct, frozen=True):
    """An image that this agent pulled and that has not changed since."""

    item: Item
    in_use: bool
    used_at: datetime


class GarbageItem(Struct, frozen=True):
    item: Item
    why: str


class Ages(Struct, frozen=True):
    """How long each kind must have been garbage. 0: never removed."""

    zombie: timedelta = timedelta(minutes=10)
    stray: timedelta = timedelta(hours=24)
    image: timedelta = timedelta()
    action: timedelta = timedelta(days=7)


def unowned_since(
    items: Iterable[Item],
    before: Mapping[str, datetime],
    *,
    known: Iterable[WorkloadId],
    now: datetime,
) -> dict[str, datetime]:
    """Since when each item has had no owner. An item that had an owner in between starts again."""
    owners = frozenset(known)
    return {item.id: before.get(item.id, now) for item in items if item.workload_id not in owners}


def unowned_items(
    items: Iterable[Item],
    seen_since: Mapping[str, datetime],
    ages: Ages,
    *,
    deleted_here: Iterable[WorkloadId],
    connected_for: timedelta,
    now: datetime,
) -> list[GarbageItem]:
    """`connected_for`: how long the scheduler has been connected without interruption."""
    deleted = frozenset(deleted_here)
    garbage = []
    for item in items:
        if item.id not in seen_since:
            continue
        age = now - seen_since[item.id]
        if item.workload_id in deleted:
            if timedelta() < ages.zombie <= age:
                garbage.append(
                    GarbageItem(item, f"zombie: its workload was deleted; seen {_age_text(age)}")
                )
        elif not item.running and timedelta() < ages.stray <= min(age, connected_for):
            why = f"stray: no order of the scheduler for it; seen {_age_text(age)}"
            garbage.append(GarbageItem(item, why))
    # A network is removed after the containers on it.
    return sorted(garbage, key=lambda each: each.item.kind is Kind.NETWORK)


def stale_images(images: Iterable[ImageUse], ages: Ages, *, now: datetime) -> list[GarbageItem]:
    if not ages.image:
        return []
    return [
        GarbageItem(image.item, f"image: not used {_age_text(now - image.used_at)}")
        for image in images
        if not image.in_use and now - image.used_at >= ages.image
    ]


def old_actions(actions: Iterable[Action], ages: Ages, *, now: datetime) -> list[ActionId]:
    if not ages.action:
        return []
    return [
        action.id
        for action in actions
        if action.state in ENDED and now - (action.ended_at or action.created_at) >= ages.action
    ]


def _age_text(age: timedelta) -> str:
    seconds = age.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"for {seconds / size:.0f}{unit}"
    return f"for {seconds:.0f}s"
