"""What an agent makes of an order that arrives: new work, nothing new, or a no.

An epoch of 0 means that the sender knows none, so it can be neither stale nor newer.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from persys.model.order import Order
from persys.model.workload import Desired


class Taken(Struct, frozen=True):
    """Work to do. `order` carries the highest epoch known."""

    order: Order


class Unchanged(Struct, frozen=True):
    """It is so already, or on the way. `order` differs from the known one at most in its epoch."""

    order: Order


class Stale(Struct, frozen=True):
    known_epoch: int


class Draining(Struct, frozen=True):
    pass


Receipt = Taken | Unchanged | Stale | Draining


def receive(
    order: Order, known: Order | None, *, failed: bool, buried_epoch: int, draining: bool
) -> Receipt:
    """`failed` is how the known order stands; `buried_epoch` is the last one of a deleted workload."""
    known_epoch = known.epoch if known is not None else buried_epoch
    if 0 < order.epoch < known_epoch:
        return Stale(known_epoch)
    if known is None:
        # A scheduler that fences its orders sends none that it does not mean; its newest word may reach
        # us before the heartbeat that takes back an older one.
        return Draining() if draining and order.epoch == 0 else Taken(order)
    order = replace(order, epoch=max(order.epoch, known.epoch))
    if _says_the_same(order, known) and not failed:
        return Unchanged(replace(known, epoch=order.epoch))
    return Taken(order)


def _says_the_same(order: Order, known: Order) -> bool:
    match order.desired:
        case Desired.DELETED:
            return known.desired is Desired.DELETED
        case Desired.RUNNING | Desired.STOPPED:
            return order.revision == known.revision and order.desired is known.desired
        case unreachable:
            assert_never(unreachable)
