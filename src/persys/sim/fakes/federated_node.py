"""A federated node: the real federation process, whose runtime is the simulated remote cluster.

Its calls pass the network of that cluster, so that its faults apply to them, and are served by the real
handlers of its schedulers. Each call goes to any of the schedulers, as with a load balancer.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from persys.agent.app import Agent
from persys.agent.journal.store import Journal
from persys.agent.uplink.link import Connect
from persys.client.grpc.channel import translated_errors
from persys.errors import DeniedError, PersysError
from persys.federation.app import Federation, Surroundings
from persys.federation.connection import Connection
from persys.federation.remote import CALL_SECONDS, RemoteCluster
from persys.federation.settings import FederationSettings
from persys.infra.aio.path_calls import DirectPathCalls
from persys.model.ids import WorkloadId
from persys.sim.engine.process import SimProcess
from persys.sim.fakes.docker import Observer
from persys.sim.fakes.node import SimNode
from persys.sim.network.channel import SimChannel
from persys.sim.network.network import Network
from persys.sim.scenario.plan import REMOTE
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from persys.wire.metadata_keys import HOME


@dataclass(slots=True)
class Token:
    """The token of the home cluster in the remote cluster."""

    revoked: bool = False

    def check(self) -> None:
        if self.revoked:
            raise DeniedError("the token was revoked", reason="token-revoked")


class SimRemote(RemoteCluster):
    def __init__(
        self,
        network: Network,
        process: SimProcess,
        addresses: Sequence[str],
        random: Random,
        token: Token,
        *,
        home: str,
        planned: Callable[[], Awaitable[None]],
    ) -> None:
        """`home` is the id of the home cluster. `planned` is called after each plan of the remote cluster."""
        stubs = [
            AgentControlStub(cast("grpc.Channel", SimChannel(network, process, address)))
            for address in addresses
        ]
        super().__init__(cast("Connection", _AnyScheduler(stubs, random)))
        self._token = token
        self._planned = planned
        self._metadata = ((HOME, home),)  # instead of a token with a prefix

    async def plan(self, request: pb.ApplyWorkloadRequest) -> pb.WorkloadPlan:
        found = await super().plan(request)
        await self._planned()
        return found

    async def _call(self, method: Callable[..., Any], request: Message) -> Any:
        with self._translated():
            self._token.check()
            return await method(request, timeout=CALL_SECONDS, metadata=self._metadata)

    async def _stream(self, open_stream: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        with self._translated():
            self._token.check()
            stream = open_stream()
            try:
                async for message in stream:
                    self._token.check()
                    yield message
            finally:
                stream.cancel()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raises the errors of RemoteCluster."""
        try:
            with translated_errors():
                yield
        except PersysError as err:
            raise self._meaning(err) from err


class _AnyScheduler:
    """A connection to one of the schedulers, chosen for each call."""

    address = REMOTE

    def __init__(self, stubs: Sequence[AgentControlStub], random: Random) -> None:
        self._stubs = stubs
        self._random = random

    @property
    def stub(self) -> AgentControlStub:
        return self._random.choice(self._stubs)


class FederatedNode(SimNode):
    """Its own Docker stays empty: its workloads run in the remote cluster."""

    def __init__(
        self,
        seed: int,
        name: str,
        network: Network,
        observer: Observer,
        *,
        schedulers: tuple[str, ...],
        streams: bool,
        cluster: str,
        connect_remote: Callable[[SimProcess], SimRemote],
        copies: Callable[[], Iterable[WorkloadId]],
    ) -> None:
        """`copies` returns the home workloads with a copy in the remote cluster."""
        super().__init__(
            seed, name, network, observer, schedulers=schedulers, streams=streams, cluster=cluster
        )
        self._federation_settings = FederationSettings(
            remote=REMOTE,
            node_id=name,
            cluster_id=cluster,
            scheduler_addr=schedulers,
            grpc_addr=name,
        )
        self._connect_remote = connect_remote
        self._copies = copies
        self._federation: Federation | None = None

    def holds(self) -> set[WorkloadId]:
        return super().holds() | set(self._copies())

    async def _new_agent(self, process: SimProcess, journal: Journal, connect: Connect) -> Agent:
        around = Surroundings(
            journal,
            self.wall.as_read(),
            DirectPathCalls(),
            self._random,
            self.name,
            connect=connect,
        )
        remote = self._connect_remote(process)
        self._federation = Federation(self._federation_settings, self.id, remote, around)
        await self._federation.prepare()
        return self._federation.agent

    def _other_parts(self) -> Iterable[Awaitable[None]]:
        return [part() for part in self._federation.parts()] if self._federation else []
