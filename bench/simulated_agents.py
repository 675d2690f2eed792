"""Many agents in one process: each has a control stream, sends heartbeats, and accepts orders.

    python -m bench.simulated_agents PORT NODES WORKLOADS_EACH [INTERVAL_SECONDS] [FIRST] [COUNT]

Registers all agents, prints `joined`, and waits for a line on stdin; then heartbeats start, spread over the
interval. Nodes and workloads are those of `bench.stored`. With FIRST and COUNT, only these of the nodes.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from random import Random

import grpc

from bench.stored import FEATURES, REVISION, node_labels, node_name, workload_names
from persys.infra.clock import SystemClock
from persys.model import feature
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc
from persys.wire.times import timestamp

CHANNELS = 40
REGISTERING_AT_ONCE = 200
INTERVAL_SECONDS = 10.0


class Agent:
    def __init__(self, number: int, nodes: int, workloads_each: int) -> None:
        self.node_id = node_name(number)
        names = workload_names(number, nodes=nodes, each=workloads_each)
        self._statuses = {name: running(name, REVISION, 1) for name in names}
        self._number = number
        self._outgoing: asyncio.Queue[pb.ControlMessage] = asyncio.Queue()
        self.registered = asyncio.Event()
        self.answered = 0

    async def keep_registered(self, stub: control_pb2_grpc.AgentControlStub) -> None:
        registration = pb.RegisterNodeRequest(
            node_id=self.node_id,
            grpc_endpoint="127.0.0.1:1",
            labels=node_labels(self._number),
            features=[*FEATURES, feature.CONTROL_STREAM],
            capabilities=pb.NodeCapabilities(
                cpu_total_millicores=64_000,
                memory_total_mb=256_000,
                supported_workload_types=["container"],
            ),
        )
        self._outgoing.put_nowait(pb.ControlMessage(register=registration))
        async for message in stub.ControlStream(self._messages()):
            self._take(message)

    def send_heartbeat(self) -> None:
        heartbeat = pb.HeartbeatRequest(
            node_id=self.node_id,
            usage=pb.NodeUsage(cpu_used_millicores=12_000, memory_used_mb=64_000),
            workload_statuses=self._statuses.values(),
            timestamp=timestamp(SystemClock().now()),
            complete=True,
        )
        self._outgoing.put_nowait(pb.ControlMessage(heartbeat=heartbeat, number=1))

    async def _messages(self) -> AsyncIterator[pb.ControlMessage]:
        while True:
            yield await self._outgoing.get()

    def _take(self, message: pb.ControlMessage) -> None:
        match message.WhichOneof("message"):
            case "registered":
                assert message.registered.accepted, message.registered.reason
                self.registered.set()
            case "heartbeat_answer":
                self.answered += 1
            case "call" if message.call.method == "ApplyWorkload":
                self._apply(message.call)

    def _apply(self, call: pb.StreamCall) -> None:
        request = agent_pb2.ApplyWorkloadRequest.FromString(call.request)
        self._statuses[request.id] = running(request.id, request.revision_id, request.epoch)
        response = agent_pb2.ApplyWorkloadResponse(
            applied=True,
            status=agent_pb2.WorkloadStatus(
                id=request.id,
                revision_id=request.revision_id,
                epoch=request.epoch,
                desired_state=request.desired_state,
                actual_state=agent_pb2.ACTUAL_STATE_RUNNING,
            ),
        )
        reply = pb.StreamReply(id=call.id, response=response.SerializeToString(), last=True)
        self._outgoing.put_nowait(pb.ControlMessage(reply=reply))


def running(name: str, revision: str, epoch: int) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(
        workload_id=name,
        state="Running",
        revision_id=revision,
        epoch=epoch,
        metadata={"container.id": "5f2b1a90c3d4", "container.image": "service:1.2.3"},
    )


async def main(
    port: int,
    nodes: int,
    workloads_each: int,
    interval: float = INTERVAL_SECONDS,
    first: float = 0,
    count: float | None = None,
) -> None:
    numbers = range(int(first), int(first + count) if count is not None else nodes)
    agents = [Agent(number, nodes, workloads_each) for number in numbers]
    channels = [
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        for _ in range(CHANNELS)
    ]
    stubs = [control_pb2_grpc.AgentControlStub(channel) for channel in channels]
    async with asyncio.TaskGroup() as group:
        slots = asyncio.Semaphore(REGISTERING_AT_ONCE)

        async def join(agent: Agent, number: int) -> None:
            async with slots:
                group.create_task(agent.keep_registered(stubs[number % CHANNELS]))
                await agent.registered.wait()

        await asyncio.gather(*(join(agent, number) for number, agent in enumerate(agents)))
        gc.freeze()  # what is measured is the scheduler
        gc.disable()
        print("joined", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        group.create_task(_answered(agents))
        for agent in agents:
            group.create_task(_heartbeats(agent, interval))


async def _heartbeats(agent: Agent, interval: float) -> None:
    await asyncio.sleep(Random(agent.node_id).uniform(0, interval))
    while True:
        agent.send_heartbeat()
        await asyncio.sleep(interval)


async def _answered(agents: list[Agent]) -> None:
    """Prints the number of acknowledged heartbeats periodically."""
    while True:
        await asyncio.sleep(1)
        print(sum(agent.answered for agent in agents), flush=True)


if __name__ == "__main__":
    port, nodes, each = (int(argument) for argument in sys.argv[1:4])
    asyncio.run(main(port, nodes, each, *(float(argument) for argument in sys.argv[4:7])))
