"""Tracks when each agent last had contact with the leader, and whether it was able to react to a loss.

Contact is recorded where the agent's calls return, independently of the agent's own state.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from persys.agent.uplink.link import Link
from persys.model.ids import NodeId
from persys.sim.fakes.docker import Container
from persys.wire.gen.control.v1 import control_pb2

NEVER = float("-inf")
# The stored time of the last contact may be older than the contact by this much.
KEPT_LATE_SECONDS = 6.0
# A stop that began while contact was lost may end this much later, with a healthy Docker.
STOPPING_SECONDS = 15.0
SILENCE_SECONDS = 20.0


@dataclass(slots=True)
class Contacts:
    """All instants are on the loop's clock."""

    spoke: dict[NodeId, float] = field(
        default_factory=dict
    )  # send time of the last acknowledged heartbeat
    hindered: dict[NodeId, float] = field(
        default_factory=dict
    )  # the last time the agent could not act
    misled: dict[NodeId, float] = field(default_factory=dict)  # its wall clock was changed
    # When the last loss of contact ended, and how long it was.
    broken: dict[NodeId, tuple[float, float]] = field(default_factory=dict)

    def heard(self, node_id: NodeId, sent: float) -> None:
        """The leader acknowledged a heartbeat that was sent at `sent`."""
        now, before = asyncio.get_running_loop().time(), self.spoke.get(node_id, NEVER)
        if now - before > SILENCE_SECONDS:
            self.broken[node_id] = (now, now - before)
        self.spoke[node_id] = max(sent, before)

    def clock_set(self, node_id: NodeId, *, back: bool) -> None:
        """A running process ignores a step back; the next process sees it."""
        until = float("inf") if back else asyncio.get_running_loop().time()
        self.misled[node_id] = max(until, self.misled.get(node_id, NEVER))

    def silence(self, node_id: NodeId) -> float:
        """How long contact is lost, or was lost until a moment ago."""
        now = asyncio.get_running_loop().time()
        ended, lasted = self.broken.get(node_id, (NEVER, 0.0))
        if max(ended, self.hindered.get(node_id, NEVER)) < now - STOPPING_SECONDS:
            lasted = 0.0
        return max(now - self.spoke.get(node_id, NEVER), lasted)

    def allows_to_stop(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        """Whether the agent may stop workloads: after stop_after, or when its clock was changed."""
        if not stop_after_seconds:
            return False
        if self.misled.get(node_id, NEVER) > self.spoke.get(node_id, NEVER):
            return True
        return self.was_long_silent(node_id, stop_after_seconds)

    def was_long_silent(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        return 0 < stop_after_seconds <= self.silence(node_id) + KEPT_LATE_SECONDS

    def excuses(self, node_id: NodeId, container: Container) -> bool:
        """Whether the agent was dead, or without Docker, when it should have stopped the container."""
        if not container.stop_after_seconds:
            return False
        due = self.spoke.get(node_id, NEVER) + container.stop_after_seconds
        return self.hindered.get(node_id, NEVER) >= due - 1


class HeardLink:
    """A link that reports acknowledged heartbeats and registrations."""

    def __init__(
        self,
        inner: Link,
        heard: Callable[[float], None],
        joining: Callable[[], None],
        reporting: Callable[[control_pb2.HeartbeatRequest], None],
    ) -> None:
        self._inner = inner
        self._heard = heard
        self._joining = joining
        self._reporting = reporting

    @property
    def leaving(self) -> bool:
        return self._inner.leaving

    @leaving.setter
    def leaving(self, value: bool) -> None:
        self._inner.leaving = value

    @property
    def over(self) -> bool:
        return self._inner.over

    @property
    def is_stale(self) -> bool:
        return self._inner.is_stale

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        self._joining()
        return await self._inner.register(request)

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        sent = asyncio.get_running_loop().time()
        self._reporting(request)
        answer = await self._inner.heartbeat(request)
        if answer.acknowledged and answer.leads:
            self._heard(sent)
        return answer


@asynccontextmanager
async def overheard(
    link: AbstractAsyncContextManager[Link],
    *,
    heard: Callable[[float], None],
    joining: Callable[[], None],
    reporting: Callable[[control_pb2.HeartbeatRequest], None],
) -> AsyncIterator[Link]:
    """`reporting` may change a heartbeat before it is sent."""
    async with link as inner:
        yield HeardLink(inner, heard, joining, reporting)
