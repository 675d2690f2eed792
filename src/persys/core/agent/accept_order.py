"""Classifies an order that an agent receives: accepted, unchanged, stale or refused because of a drain.

Epoch 0 means that the sender does not use epochs, so the order is neither stale nor newer. A delete ends its
assignment: an apply with the same or a lower epoch is a late repetition, and is refused.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from persys.model.workload import Desired, Order


class Taken(Struct, frozen=True):
    """Accepted. `order` has the highest known epoch."""

    order: Order


class Unchanged(Struct, frozen=True):
    """Already applied or in progress. `order` differs from the known one at most in its epoch."""

    order: Order


class Stale(Struct, frozen=True):
    known_epoch: int
    deleted: bool = False  # that assignment was deleted here; otherwise a newer one exists


class Draining(Struct, frozen=True):
    pass


Receipt = Taken | Unchanged | Stale | Draining


def receive(
    order: Order, known: Order | None, *, failed: bool, deleted_epoch: int, draining: bool
) -> Receipt:
    """`failed`: the known order has failed.

    `deleted_epoch`: for an unknown id, assignments up to this epoch may have been deleted here.
    """
    if known is None and 0 < order.epoch <= deleted_epoch:
        return Stale(deleted_epoch, deleted=True)
    if known is not None and 0 < order.epoch < known.epoch:
        return Stale(known.epoch)
    if known is not None and _undoes_a_delete(order, known):
        return Stale(known.epoch, deleted=True)
    if known is None:
        # A scheduler with epochs sends only valid orders. Its newest order may arrive before the heartbeat
        # that ends the drain.
        return Draining() if draining and order.epoch == 0 else Taken(order)
    if order.epoch == 0:
        order = replace(order, epoch=known.epoch, proof=known.proof)
    if _says_the_same(order, known) and not failed:
        return Unchanged(replace(known, epoch=order.epoch, proof=order.proof or known.proof))
    return Taken(order)


def _undoes_a_delete(order: Order, known: Order) -> bool:
    return (
        known.desired is Desired.DELETED
        and order.desired is not Desired.DELETED
        and 0 < order.epoch <= known.epoch
    )


def _says_the_same(order: Order, known: Order) -> bool:
    match order.desired:
        case Desired.DELETED:
            return known.desired is Desired.DELETED
        case Desired.RUNNING | Desired.STOPPED:
            return order.revision == known.revision and order.desired is known.desired
        case unreachable:
            assert_never(unreachable)
