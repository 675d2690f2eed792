"""Contact between agents and schedulers, from both sides.

`AgentContacts` tracks when each agent last had contact with the leader, and whether it was able to react to a
loss. It is recorded where the agent's calls return, independently of the agent's own state. `Heartbeats`
tracks what schedulers acknowledged.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from persys.agent.uplink.link import Link
from persys.model.ids import NodeId
from persys.sim.engine.process import SimProcess
from persys.sim.fakes.docker import Container
from persys.wire.gen.control.v1 import control_pb2

NEVER = float("-inf")
# The stored time of the last contact may be older than the contact by this much.
KEPT_LATE_SECONDS = 6.0
# A stop that began while contact was lost may end this much later, with a healthy Docker.
STOPPING_SECONDS = 15.0
SILENCE_SECONDS = 20.0
# A heartbeat within this time before a commit may not have been seen by its decision.
JUDGING_SECONDS = 12.0
CONTACTS_MAX = 100


@dataclass(slots=True)
class AgentContacts:
    """All instants are on the loop's clock."""

    last_contact: dict[NodeId, float] = field(
        default_factory=dict
    )  # send time of the last acknowledged heartbeat
    hindered: dict[NodeId, float] = field(
        default_factory=dict
    )  # the last time the agent could not act
    # The last time that its reports had arbitrary content.
    untrusted: dict[NodeId, float] = field(default_factory=dict)
    clock_changed: dict[NodeId, float] = field(default_factory=dict)  # its wall clock was changed
    # When the last loss of contact ended, and how long it was.
    last_outage: dict[NodeId, tuple[float, float]] = field(default_factory=dict)

    def heard(self, node_id: NodeId, sent: float) -> None:
        """The leader acknowledged a heartbeat that was sent at `sent`."""
        now, before = asyncio.get_running_loop().time(), self.last_contact.get(node_id, NEVER)
        if now - before > SILENCE_SECONDS:
            self.last_outage[node_id] = (now, now - before)
        self.last_contact[node_id] = max(sent, before)

    def clock_set(self, node_id: NodeId, *, back: bool) -> None:
        """A running process ignores a step back; the next process sees it."""
        until = float("inf") if back else asyncio.get_running_loop().time()
        self.clock_changed[node_id] = max(until, self.clock_changed.get(node_id, NEVER))

    def silence(self, node_id: NodeId) -> float:
        """How long contact is lost, or was lost until a moment ago."""
        now = asyncio.get_running_loop().time()
        ended, lasted = self.last_outage.get(node_id, (NEVER, 0.0))
        if max(ended, self.hindered.get(node_id, NEVER)) < now - STOPPING_SECONDS:
            lasted = 0.0
        return max(now - self.last_contact.get(node_id, NEVER), lasted)

    def may_stop(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        """Whether the agent may stop workloads: after stop_after, or when its clock was changed."""
        if not stop_after_seconds:
            return False
        if self.clock_changed.get(node_id, NEVER) > self.last_contact.get(node_id, NEVER):
            return True
        return self.was_long_silent(node_id, stop_after_seconds)

    def was_long_silent(self, node_id: NodeId, stop_after_seconds: int) -> bool:
        return 0 < stop_after_seconds <= self.silence(node_id) + KEPT_LATE_SECONDS

    def was_blocked(self, node_id: NodeId, container: Container) -> bool:
        """Whether the agent was dead, or without Docker, when it should have stopped the container."""
        if not container.stop_after_seconds:
            return False
        due = self.last_contact.get(node_id, NEVER) + container.stop_after_seconds
        return self.hindered.get(node_id, NEVER) >= due - 1


@dataclass(frozen=True, slots=True)
class Contact:
    """When a scheduler acknowledged a heartbeat of a node."""

    by: SimProcess
    at: float


class Heartbeats:
    """The heartbeats that schedulers acknowledged; checks that a lease is not ended early."""

    def __init__(
        self, time: Callable[[], float], fail: Callable[[str, str], None], *, lease_seconds: float
    ) -> None:
        self._time = time
        self._fail = fail
        self.lease_seconds = lease_seconds
        self._contacts: dict[NodeId, deque[Contact]] = {}
        self._registered: dict[
            NodeId, float
        ] = {}  # when a scheduler last accepted its registration
        self._leader: SimProcess | None = None
        self._leader_since = 0.0

    def acknowledged(self, node_id: NodeId, by: SimProcess) -> None:
        heard = self._contacts.setdefault(node_id, deque(maxlen=CONTACTS_MAX))
        heard.append(Contact(by, self._time()))

    def registered(self, node_id: NodeId) -> None:
        self._registered[node_id] = self._time()

    def leads(self, process: SimProcess) -> None:
        if self._leader is not process:
            self._leader_since = self._time()
        self._leader = process

    def is_leader(self, process: SimProcess) -> bool:
        """By the store. A replaced leader may not know it yet, and responds with older data."""
        return self._leader is process

    def of_leader(self, node_id: NodeId) -> Iterable[Contact]:
        """Those that the leader has acknowledged since it leads. A standby only forwards heartbeats."""
        heard = self._contacts.get(node_id, ())
        return (one for one in heard if one.by is self._leader and one.at >= self._leader_since)

    def silent_for(self, node_id: NodeId) -> float:
        """Seconds since a scheduler acknowledged a heartbeat of the node, or accepted its registration."""
        heard = self._contacts.get(node_id)
        last = max(heard[-1].at if heard else 0.0, self._registered.get(node_id, 0.0))
        return self._time() - last

    def check_not_ready(self, process: SimProcess, node_id: NodeId) -> None:
        """A node is marked not ready only after its lease; heartbeats during the commit do not count."""
        now = self._time()
        led = now - self._leader_since
        if led < self.lease_seconds - 1:
            self._fail("lease", f"{node_id} marked not ready by a leader since {led:.1f}s")
        for heard in self._contacts.get(node_id, ()):
            silent = now - heard.at
            if heard.by is process and JUDGING_SECONDS < silent < self.lease_seconds - 1:
                self._fail("lease", f"{node_id} marked not ready {silent:.1f}s after a heartbeat")


class RecordingLink:
    """A link that reports acknowledged heartbeats and registrations."""

    def __init__(
        self,
        inner: Link,
        heard: Callable[[float], None],
        registered_at: Callable[[], None],
        reporting: Callable[[control_pb2.HeartbeatRequest], None],
    ) -> None:
        self._inner = inner
        self._on_contact = heard
        self._joining = registered_at
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
            self._on_contact(sent)
        return answer


@asynccontextmanager
async def recorded(
    link: AbstractAsyncContextManager[Link],
    *,
    heard: Callable[[float], None],
    registered_at: Callable[[], None],
    reporting: Callable[[control_pb2.HeartbeatRequest], None],
) -> AsyncIterator[Link]:
    """`reporting` may change a heartbeat before it is sent."""
    async with link as inner:
        yield RecordingLink(inner, heard, registered_at, reporting)
