"""A node of the simulation: a machine with Docker, volumes and a disk, and on it the real agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

from persys.agent.app import Agent, Surroundings
from persys.agent.link import GrpcLink, Link
from persys.agent.settings import AgentSettings
from persys.agent.state import State
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType
from persys.sim.dice import dice
from persys.sim.disk import CLUSTER, Disk
from persys.sim.docker import Docker, Witness
from persys.sim.happening import SCHEDULER
from persys.sim.life import Life
from persys.sim.machine import Hardware, WallClock
from persys.sim.network import Network, Stub
from persys.sim.runtime import RuntimeTrouble, SimRuntime, SimVolumes
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2_grpc

PORT = 50051
METHODS = tuple(
    method.name for method in agent_pb2.DESCRIPTOR.services_by_name["AgentService"].methods
)


class SimNode:
    runtime_type = SimRuntime

    def __init__(self, seed: int, name: str, network: Network, witness: Witness) -> None:
        self.id = NodeId(name)
        self.powered = True
        self.life: Life | None = None
        self.state: State | None = None
        self.wall = WallClock()
        self.trouble = RuntimeTrouble()
        self.disk = Disk(self.id, dice(seed, name, "disk"))
        self.docker = Docker(self.id, self.wall, dice(seed, name, "docker"), witness)
        self._hardware = Hardware(cpu_millicores=4000, memory_mb=8192, disk_gb=40)
        self._random = dice(seed, name, "agent")
        self._network = network
        self._witness = witness
        self._settings = replace(
            AgentSettings(),
            cluster_id=CLUSTER,
            scheduler_addr=(SCHEDULER,),
            agent_grpc_endpoint=name,
        )

    async def run(self, life: Life) -> None:
        """The agent, until it dies."""
        self.state = state = self.disk.journal(life)

        @asynccontextmanager
        async def connect(address: str) -> AsyncIterator[Link]:
            stub = Stub(self._network, life, address)
            yield GrpcLink(cast("control_pb2_grpc.AgentControlStub", stub))

        random = self._random
        around = Surroundings(
            state=state,
            runtimes={
                WorkloadType.CONTAINER: self.runtime_type(
                    self.docker, life, self.trouble, random, self._witness
                )
            },
            volumes=SimVolumes(self.docker, life, self._witness, random),
            machine=self._hardware,
            clock=self.wall.as_read(),
            connect=connect,
            random=random,
        )
        agent = Agent(self._settings, self.id, around)
        api = agent.api()
        life.serves = {name: getattr(api, name) for name in METHODS if hasattr(api, name)}
        await life.together(part() for part in agent.parts(PORT).values())
