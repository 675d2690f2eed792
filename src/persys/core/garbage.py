"""What may go from a node, and why: only what has the agent's own marks, and only what is surely nobody's.

    zombie   its workload was deleted here, and it is there all the same
    stray    the journal does not know its workload, although the scheduler has spoken to this node all the
             while and sends what it wants here; it goes only if it does not run, and its data stays
    image    this agent fetched it, and nothing has used it for long
    action   a line of history

What would surprise: ages count from when the agent first saw that something is nobody's, not from its making.
A journal that was lost a minute ago makes everything look like a stray, and nothing of it may go.
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
    MACHINE = "machine"
    NETWORK = "network"
    IMAGE = "image"
    FILES = "files"  # of a container that may be there: it counts as running then
    ACTIONS = "actions"


class Item(Struct, frozen=True):
    """Something on the node with the agent's own marks."""

    kind: Kind
    id: str
    name: str
    workload_id: WorkloadId = WorkloadId("")
    running: bool = False


class ImageUse(Struct, frozen=True):
    """An image that this agent fetched and that is still what it fetched."""

    item: Item
    in_use: bool
    used_at: datetime


class Doomed(Struct, frozen=True):
    item: Item
    why: str


class Ages(Struct, frozen=True):
    """How long each must have been garbage. 0: it is never removed."""

    zombie: timedelta = timedelta(minutes=10)
    stray: timedelta = timedelta(hours=24)
    image: timedelta = timedelta()
    action: timedelta = timedelta(days=7)


def sightings(
    items: Iterable[Item],
    before: Mapping[str, datetime],
    *,
    known: Iterable[WorkloadId],
    now: datetime,
) -> dict[str, datetime]:
    """Since when each item has been nobody's. What came to belong to somebody begins anew."""
    owners = frozenset(known)
    return {item.id: before.get(item.id, now) for item in items if item.workload_id not in owners}


def leftovers(
    items: Iterable[Item],
    seen_since: Mapping[str, datetime],
    ages: Ages,
    *,
    buried: Iterable[WorkloadId],
    in_touch: timedelta,
    now: datetime,
) -> list[Doomed]:
    """`in_touch`: how long the scheduler has spoken to this node without a break."""
    deleted = frozenset(buried)
    doomed = []
    for item in items:
        if item.id not in seen_since:
            continue
        age = now - seen_since[item.id]
        if item.workload_id in deleted:
            if timedelta() < ages.zombie <= age:
                doomed.append(Doomed(item, f"zombie: its workload was deleted; seen {_told(age)}"))
        elif not item.running and timedelta() < ages.stray <= min(age, in_touch):
            why = f"stray: unknown here and not wanted by the scheduler; seen {_told(age)}"
            doomed.append(Doomed(item, why))
    # A network goes only after what hangs on it.
    return sorted(doomed, key=lambda each: each.item.kind is Kind.NETWORK)


def stale_images(images: Iterable[ImageUse], ages: Ages, *, now: datetime) -> list[Doomed]:
    if not ages.image:
        return []
    return [
        Doomed(image.item, f"image: not used {_told(now - image.used_at)}")
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


def _told(age: timedelta) -> str:
    seconds = age.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"for {seconds / size:.0f}{unit}"
    return f"for {seconds:.0f}s"
