"""Signals between parts of the scheduler: a part emits one, and does not know which parts react.

`app.py` connects them after all parts are built. Calls down the layers are plain constructor arguments;
signals are for the opposite direction, from a part to those that were built after it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from persys.core.reconcile.effects import Effect
from persys.model.ids import NodeId
from persys.model.placement import Tombstone
from persys.model.service import ServiceId
from persys.model.workload import Workload
from persys.scheduler.state.service_members import MemberChange

T = TypeVar("T")


class Signal(Generic[T]):
    """Calls its receivers in the order in which they were connected. A receiver must not block."""

    def __init__(self) -> None:
        self._receivers: list[Callable[[T], None]] = []

    def connect(self, *receivers: Callable[[T], None]) -> None:
        self._receivers.extend(receivers)

    def emit(self, value: T) -> None:
        for receive in self._receivers:
            receive(value)


@dataclass(frozen=True, slots=True)
class NodeCall:
    """The outcome of a call to a node. `problem` is empty if it replied."""

    node_id: NodeId
    problem: str


@dataclass(frozen=True, slots=True)
class Signals:
    effect_decided: Signal[Effect] = field(default_factory=Signal)
    copy_left: Signal[Tombstone] = field(default_factory=Signal)  # a tombstone was written
    node_changed: Signal[NodeId] = field(
        default_factory=Signal
    )  # its record was written or deleted
    # A member of a set or a run, its assignment, its status or its retry.
    member_changed: Signal[Workload] = field(default_factory=Signal)
    # A service, or one of its members, its assignment or its status.
    service_member_changed: Signal[MemberChange] = field(default_factory=Signal)
    endpoints_changed: Signal[ServiceId] = field(default_factory=Signal)  # or they may have changed
    node_called: Signal[NodeCall] = field(default_factory=Signal)
    node_returned: Signal[NodeId] = field(default_factory=Signal)  # it registered or is ready again
    node_replies: Signal[NodeId] = field(default_factory=Signal)  # to calls, after it did not
    agent_replaced: Signal[NodeId] = field(default_factory=Signal)  # another process is its agent
    state_changed: Signal[NodeId] = field(default_factory=Signal)  # on the node, without an order
    job_changed: Signal[str] = field(default_factory=Signal)  # by a user
    records_loaded: Signal[None] = field(default_factory=Signal)
    leader_confirmed: Signal[None] = field(default_factory=Signal)  # the store confirmed our lease
    mode_normal: Signal[None] = field(default_factory=Signal)
