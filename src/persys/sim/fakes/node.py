"""A simulated node: a machine with Docker, volumes and a disk, which runs the real agent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from inspect import isasyncgenfunction
from typing import Any, cast

import grpc

from persys.agent.api.service import AgentApi
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.store import Journal
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.settings import AgentSettings
from persys.agent.uplink.link import Connect, Link, connect_unary
from persys.agent.uplink.stream_link import connect_stream
from persys.infra.aio.path_calls import DirectPathCalls
from persys.model.ids import NodeId, WorkloadId
from persys.model.spec import WorkloadType
from persys.model.workload import Desired
from persys.sim.actors.intruders import falsify
from persys.sim.checks.agent_contact import recorded
from persys.sim.engine.hardware import Hardware, WallClock
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import rng
from persys.sim.fakes.docker import Docker, Observer
from persys.sim.fakes.engine_faults import RuntimeFaults
from persys.sim.fakes.journal_disk import CLUSTER, Disk
from persys.sim.fakes.runtime import SimRuntime, SimVolumes
from persys.sim.network.channel import SimChannel
from persys.sim.network.network import Network
from persys.sim.scenario.plan import SCHEDULER
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

PORT = 50051
METHODS = tuple(
    method.name for method in agent_pb2.DESCRIPTOR.services_by_name["AgentService"].methods
)


class RecordedApi:
    """Reports calls over the control stream to the network, like all other calls."""

    def __init__(self, api: AgentApi, process: SimProcess, network: Network) -> None:
        self._api = api
        self._process = process
        self._network = network

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._api, name)
        if isasyncgenfunction(method):
            return method

        async def call(request: Any, context: Any) -> Any:
            self._network.on_request(self._process.name, name, request)
            await self._process.gate("receive")
            answer = await method(request, context)
            self._network.on_answer(self._process, name, request, answer, ())
            await self._process.gate("answer")
            return answer

        return call


class SimNode:
    runtime_type = SimRuntime

    def __init__(
        self,
        seed: int,
        name: str,
        network: Network,
        observer: Observer,
        *,
        schedulers: tuple[str, ...] = (SCHEDULER,),
        streams: bool = False,
        size: int = 1,
        clone_of: "SimNode | None" = None,
        cluster: str = CLUSTER,
    ) -> None:
        """`name` is its address and its node id; a clone has the id and the journal of another node.

        `streams`: it uses a control stream instead of unary calls. `size` multiplies its capacity.
        """
        self.name = name
        self.id: NodeId = clone_of.id if clone_of is not None else NodeId(name)
        self.powered = True
        self.process: SimProcess | None = None
        self.journal: Journal | None = None
        self.wall = WallClock()
        self.faults = RuntimeFaults()
        self.silent_since: float | None = None  # since when Docker does not respond
        self.false_reports = 0.0  # share of its heartbeats with arbitrary content
        random = rng(seed, name, "disk")
        self.disk: Disk = (
            clone_of.disk.copy(random)
            if clone_of is not None
            else Disk(self.id, random, cluster=cluster)
        )
        # The orders that a clone starts with.
        self.inherited: frozenset[tuple[WorkloadId, int]] = frozenset()
        if clone_of is not None:
            orders = [entry.order for entry in clone_of.disk.all_kept()]
            self.inherited = frozenset((order.workload_id, order.epoch) for order in orders)
        self.docker = Docker(NodeId(name), self.wall, rng(seed, name, "docker"), observer)
        self._hardware = Hardware(
            cpu_millicores=4000 * size, memory_mb=8192 * size, disk_gb=40 * size
        )
        self._random = rng(seed, name, "agent")
        self._network = network
        self._observer = observer
        self.streams = streams
        self._settings = replace(
            AgentSettings(),
            cluster_id=cluster,
            scheduler_addr=schedulers,
            agent_grpc_endpoint=name,
        )

    @property
    def cannot_act(self) -> bool:
        """Whether the agent is dead or Docker has a fault."""
        up = self.process is not None and self.process.alive
        return self.powered and (not up or self.faults != RuntimeFaults())

    def docker_fails(self, now: float) -> None:
        """Docker stops responding and sending events."""
        self.faults.out = True
        self.silent_since = now if self.silent_since is None else self.silent_since
        self.docker.lose_listeners()

    def docker_returns(self) -> None:
        self.faults.out = False
        self.silent_since = None

    def power_off(self) -> None:
        self.powered = False
        self._network.powered_off.add(self.id)
        self.end()

    def power_on(self) -> None:
        self.powered = True
        self._network.powered_off.discard(self.id)
        self.docker.power_on()

    def destroy(self) -> None:
        """Destroy the machine and its data."""
        self.power_off()
        self.docker.wipe()
        self.disk.wipe()
        self.journal = None

    def end(self) -> None:
        """End everything that runs on the machine."""
        if self.process is not None:
            self.process.crash()
        self.docker.power_off()

    def holds(self) -> set[WorkloadId]:
        """All workloads with a container or a journal entry here."""
        return {
            *self.docker.containers,
            *(entry.order.workload_id for entry in self.disk.all_kept()),
        }

    def keeps(self) -> set[WorkloadId]:
        """Workloads that the agent must keep, running or stopped."""
        return {
            entry.order.workload_id
            for entry in self.disk.all_kept()
            if entry.order.desired is not Desired.DELETED
        }

    def _report(self, report: control_pb2.HeartbeatRequest) -> None:
        if self._random.random() < self.false_reports:
            falsify(report, self._random)

    async def run(self, process: SimProcess) -> None:
        """Run the agent until it crashes."""
        if self.silent_since is not None:
            self.silent_since = asyncio.get_running_loop().time()  # this process has not reported
        self.journal = journal = self.disk.journal(
            process,
            written_by_call=lambda: self._observer.fail(
                "ownership", f"{self.id} writes its journal in the task of a call"
            ),
        )

        def dial(address: str) -> grpc.aio.Channel:
            return cast("grpc.aio.Channel", SimChannel(self._network, process, address))

        def connect(address: str) -> AbstractAsyncContextManager[Link]:
            link = streaming(address) if self.streams else connect_unary(address, dial)
            return recorded(
                link,
                heard=lambda sent: self._observer.heard(self.id, sent),
                registered_at=lambda: self._observer.joins(self.id),
                reporting=self._report,
            )

        agent = await self._new_agent(process, journal, connect)
        api = agent.api
        streaming = connect_stream(
            TunnelServer(
                cast("AgentApi", RecordedApi(api, process, self._network)), agent.supervisor
            ),
            dial,
            certificate=lambda: None,
        )
        process.serves = {name: getattr(api, name) for name in METHODS if hasattr(api, name)}
        await process.together(
            [*(part() for part in agent.parts(PORT).values()), *self._other_parts()]
        )

    async def _new_agent(self, process: SimProcess, journal: Journal, connect: Connect) -> Agent:
        random = self._random
        runtime = self.runtime_type(
            self.docker,
            process,
            self.faults,
            random,
            self._observer,
            self._network.silent_registries,
        )
        environment = Environment(
            journal=journal,
            runtimes=NodeRuntimes(dict.fromkeys(WorkloadType, runtime)),
            volumes=SimVolumes(self.docker, self.disk, process, self._observer, random),
            host=self._hardware,
            clock=self.wall.as_read(),
            paths=DirectPathCalls(),
            connect=connect,
            random=random,
            boot_id=self.name,
        )
        return Agent(self._settings, self.id, environment)

    def _other_parts(self) -> Iterable[Awaitable[None]]:
        """What the process runs besides the parts of the agent."""
        return ()
