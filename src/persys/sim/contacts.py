"""Since when each agent is without a scheduler that leads, and whether it could act on that.

What agents heard is noted where their calls return, whatever they make of it themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from persys.agent.link import Link
from persys.model.ids import NodeId
from persys.sim.docker import Container
from persys.wire.gen.control.v1 import control_pb2

NEVER = float("-inf")
# What is written down of the last word may be so much older than the word.
KEPT_LATE_SECONDS = 6.0
# A stop that was begun in the silence may end so much after it, by a Docker that is well.
STOPPING_SECONDS = 15.0
SILENCE_SECONDS = 20.0


@dataclass(slots=True)
class Contacts:
    """Instants on the loop's clock."""

    spoke: dict[NodeId, float] = field(default_factory=dict)  # sent then, and acknowledged
    hindered: dict[NodeId, float] = field(default_factory=dict)  # the last such moment
    misled: dict[NodeId, float] = field(default_factory=dict)  # its clock was set
    broken: dict[NodeId, tuple[float, float]] = field(
        default_factory=dict
    )  # when, and how long it was

    def heard(self, node_id: NodeId, sent: float) -> None:
        """An agent has the word of a scheduler that leads, about what it sent then."""
        now, before = asyncio.get_running_loop().time(), self.spoke.get(node_id, NEVER)
        if now - before > SILENCE_SECONDS:
            self.broken[node_id] = (now, now - before)
        self.spoke[node_id] = max(sent, before)

    def clock_set(self, node_id: NodeId, *, back: bool) -> None:
        """A step back is not followed by who runs, and found by whoever starts next."""
        until = float("inf") if back else asyncio.get_running_loop().time()
        self.misled[node_id] = max(until, self.misled.get(node_id, NEVER))

    def silence(self, node_id: NodeId) -> float:
        """As long as it is, or was until a moment ago."""
        now = asyncio.get_running_loop().time()
        ended, lasted = self.broken.get(node_id, (NEVER, 0.0))
        if max(ended, self.hindered.get(node_id, NEVER)) < now - STOPPING_SECONDS:
            lasted = 0.0
        return max(now - self.spoke.get(node_id, NEVER), lasted)

    def allows_to_stop(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        """Whether an agent may have had enough of the silence: a clock that was set cannot say how long."""
        if not stop_after_seconds:
            return False
        if self.misled.get(node_id, NEVER) > self.spoke.get(node_id, NEVER):
            return True
        return self.was_long_silent(node_id, stop_after_seconds)

    def was_long_silent(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        return 0 < stop_after_seconds <= self.silence(node_id) + KEPT_LATE_SECONDS

    def excuses(self, node_id: NodeId, container: Container) -> bool:
        """Whether the agent was dead, or without Docker, when it should have stopped this by itself."""
        if not container.stop_after_seconds:
            return False
        due = self.spoke.get(node_id, NEVER) + container.stop_after_seconds
        return self.hindered.get(node_id, NEVER) >= due - 1


class HeardLink:
    """A link whose acknowledged heartbeats are noted, and its registrations."""

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
    def is_old(self) -> bool:
        return self._inner.is_old

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
    """`reporting` may change a report before it is sent."""
    async with link as inner:
        yield HeardLink(inner, heard, joining, reporting)
