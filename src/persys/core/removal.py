"""Removing a node: in which steps, what that means for its certificates, and how long it is remembered."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from persys.core.enrolment import SERVICE_LIFE_MOST
from persys.core.upkeep import OPERATOR
from persys.model.ids import WorkloadId
from persys.model.node import Node
from persys.model.removal import Removal

# By then every certificate from before has ended, also where the clocks do not quite agree.
REMEMBERED = SERVICE_LIFE_MOST + timedelta(days=1)
# What one transaction of a removal deletes beside the node itself.
DEPENDENTS_PER_STEP_MAX = 64
# Old removals that are forgotten with one change of a node.
FORGOTTEN_PER_CHANGE_MAX = 16


@dataclass(frozen=True, slots=True)
class Blocked:
    """The node has workloads: it is not removed, and a mark is taken back."""

    why: str


@dataclass(frozen=True, slots=True)
class Mark:
    """First write that the node is being removed: from then on it takes no work and cannot register."""

    node: Node


@dataclass(frozen=True, slots=True)
class Part:
    """Delete these keys; the node stays until all are gone."""

    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Last:
    """Delete these keys with the node itself."""

    keys: Sequence[str]


RemovalStep = Blocked | Mark | Part | Last


def next_step(
    node: Node, dependents: Sequence[str], bound: Collection[WorkloadId], *, now: datetime
) -> RemovalStep:
    """`dependents` are the keys of all that is on record for the node, `bound` its workloads.

    A node with few dependents is removed in one step. After a crash the next step follows from the records.
    """
    if bound:
        return Blocked(
            f"node {node.id} still has {len(bound)} workloads, such as {min(bound)}; "
            "drain it or delete them first"
        )
    if len(dependents) <= DEPENDENTS_PER_STEP_MAX:
        return Last(dependents)
    if node.removing_since is None:
        return Mark(
            replace(
                node,
                removing_since=now,
                status_reason=f"being removed with {len(dependents)} records",
                status_by=OPERATOR,
                status_at=now,
            )
        )
    return Part(dependents[:DEPENDENTS_PER_STEP_MAX])


def is_void(removal: Removal | None, enrolled_at: datetime) -> bool:
    """Whether a certificate of the node is from before its removal; renewals do not make it younger."""
    return removal is not None and enrolled_at <= removal.removed_at


def outdated(removals: Iterable[Removal], now: datetime) -> list[Removal]:
    """Those that need not be remembered, but only as many as one change may drop."""
    old = (one for one in removals if now - one.removed_at > REMEMBERED)
    return list(islice(old, FORGOTTEN_PER_CHANGE_MAX))
