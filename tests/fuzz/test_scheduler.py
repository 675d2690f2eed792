"""Fuzzers of a live scheduler: no input of a client or an agent affects other callers.

Every contained exception is a defect, too.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import grpc

from fuzz.budget import rounds
from fuzz.generator import a_change, a_message, some_bytes
from fuzz.services import CALL_SECONDS, call, contained_errors, requests_of
from persys.infra.clock import SystemClock
from persys.model import feature
from persys.store.memory import MemoryStore
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore

SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
AGENT = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
NODE = "steady"  # no fuzzed request names it
TUNNELLED = "tunnelled"  # a node that is reached only through its stream, with random responses
# RPCs that replace all stored records.
RECOVERY = frozenset({"RestoreSnapshot", "RebuildFromAgents", "AcceptEmpty"})
HOSTILE = "hostile"  # a node with its own address and random responses
WINDOWS = (0, 1, 8, 17, -1, 2**31 - 1, -(2**31))


@asynccontextmanager
async def a_cluster_with_a_canary() -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        await cluster.join(NODE)
        await apply_on(cluster, "canary")
        await cluster.control.until("canary", "Running", within=60)
        yield cluster
        await check_canary(cluster)
    await store.store.close()


async def apply_on(cluster: Cluster, name: str, node: str = NODE) -> None:
    request = valid("ApplyWorkload")
    request.workload_id = name
    request.spec.placement.constraints.append(f"node.id == {node}")
    assert (await cluster.control.send(request)).success


async def check_canary(cluster: Cluster) -> None:
    """An untouched workload is unchanged, and new ones run."""
    assert (await cluster.control.workload("canary")).status == "Running"
    await apply_on(cluster, "after")
    await cluster.control.until("after", "Running", within=60)
    await cluster.control.delete("after")
    assert await contained_errors(cluster.settings.metrics_port) == []


def valid(name: str) -> Any:
    """A valid request, to be mutated."""
    spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx"))
    capabilities = pb.NodeCapabilities(
        cpu_total_millicores=1000, memory_total_mb=1024, supported_workload_types=["container"]
    )
    known = {
        "AddImage": pb.AddImageRequest(start=pb.AddImageStart(name="tiny", size_bytes=4)),
        "ApplyWorkload": pb.ApplyWorkloadRequest(workload_id="fuzzed", spec=spec),
        "CreateToken": pb.CreateTokenRequest(name="ci", role="viewer"),
        "DeleteWorkload": pb.DeleteWorkloadRequest(workload_id="fuzzed"),
        "Exec": pb.ExecInput(start=pb.ExecStart(workload_id="canary", command=["true"])),
        "ExplainWorkload": pb.ExplainWorkloadRequest(workload_id="canary"),
        "Heartbeat": pb.HeartbeatRequest(
            node_id="fuzzed",
            usage=pb.NodeUsage(),
            complete=True,
            workload_statuses=[pb.WorkloadStatus(workload_id="canary", state="Running", epoch=1)],
        ),
        "PlanWorkloads": pb.PlanWorkloadsRequest(
            workloads=[pb.ApplyWorkloadRequest(workload_id="planned", spec=spec)]
        ),
        "PutSecret": pb.PutSecretRequest(name="db", value=b"one"),
        "RegisterNode": pb.RegisterNodeRequest(
            node_id="fuzzed", capabilities=capabilities, grpc_endpoint="127.0.0.1:1"
        ),
        "StreamLogs": pb.LogsRequest(workload_id="canary", tail=5),
    }
    return known.get(name)


async def test_every_call_to_the_scheduler_is_answered_or_refused() -> None:
    left_out = RECOVERY | {"ControlStream"}
    methods = [method for method in SERVICE.methods if method.name not in left_out]
    for one_round in rounds("scheduler_calls", size=300):
        with one_round:
            async with a_cluster_with_a_canary() as cluster:
                for one in one_round:
                    with one as random:
                        method = random.choice(methods)
                        requests = requests_of(random, method, partial(valid, method.name))
                        await call(cluster.control.channel, method, requests)


async def test_random_control_stream_messages_do_not_affect_other_nodes() -> None:
    for one_round in rounds("control_stream", size=200):
        with one_round:
            async with a_cluster_with_a_canary() as cluster:
                raw: Any = cluster.control.channel.stream_stream(
                    f"/{SERVICE.full_name}/ControlStream"
                )
                for one in one_round:
                    with one as random:
                        await exchange(raw(), some_frames(random))


def some_frames(random: Random) -> list[bytes]:
    register = pb.ControlMessage(register=valid("RegisterNode"))
    if random.random() < 0.2:
        a_change(random, register)
    frames = [register.SerializeToString()] if random.random() < 0.8 else []
    for _ in range(random.randint(1, 6)):
        message = a_message(random, pb.ControlMessage.DESCRIPTOR)
        encoded = message.SerializeToString()
        frames.append(encoded if random.random() < 0.8 else some_bytes(random))
    return frames


async def exchange(stream: Any, frames: list[bytes]) -> None:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            for frame in frames:
                await stream.write(frame)
            await stream.done_writing()
            async for _ in stream:
                pass
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return


async def test_random_responses_of_a_tunnelled_agent_do_not_affect_other_nodes() -> None:
    for one_round in rounds("tunnelled_answers", size=100):
        with one_round:
            async with a_cluster_with_a_canary() as cluster, asyncio.TaskGroup() as group:
                agent = HostileAgent(cluster)
                serving = group.create_task(agent.serve())
                await agent.registered.wait()
                await apply_on(cluster, "victim", TUNNELLED)
                for one in one_round:
                    with one as random:
                        agent.random = random
                        await call_agent(cluster, random)
                serving.cancel()


async def test_random_responses_of_an_agent_do_not_affect_other_nodes() -> None:
    for one_round in rounds("direct_answers", size=100):
        with one_round:
            async with a_cluster_with_a_canary() as cluster, a_hostile_server() as server:
                await register(cluster, server.port)
                await apply_on(cluster, "victim", HOSTILE)
                for one in one_round:
                    with one as random:
                        server.random = random
                        await register(cluster, server.port)
                        await call_agent(cluster, random)


async def register(cluster: Cluster, port: int) -> None:
    """Sends heartbeats too, so the node stays alive."""
    request = valid("RegisterNode")
    request.node_id = HOSTILE
    request.grpc_endpoint = f"127.0.0.1:{port}"
    assert (await cluster.control.stub.RegisterNode(request, timeout=CALL_SECONDS)).accepted


class HostileServer:
    """An agent with its own address that responds to every call with random messages."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.server = grpc.aio.server()
        handlers: dict[str, Any] = {method.name: self._handler(method) for method in AGENT.methods}
        generic = grpc.method_handlers_generic_handler(AGENT.full_name, handlers)
        self.server.add_generic_rpc_handlers((generic,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def _handler(self, method: Any) -> Any:
        async def answer(_request: Any, context: Any) -> bytes:
            await self._maybe_abort(context)
            return a_response(self.random, method)

        async def answers(_request: Any, context: Any) -> None:
            for _ in range(self.random.choice((0, 1, 3, 30))):
                await context.write(a_response(self.random, method))
            await self._maybe_abort(context)

        if not method.server_streaming:
            return grpc.unary_unary_rpc_method_handler(answer)
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(answers)
        return grpc.unary_stream_rpc_method_handler(answers)

    async def _maybe_abort(self, context: Any) -> None:
        if self.random.random() < 0.2:
            code = self.random.choice([one for one in grpc.StatusCode if one.value[0]])
            await context.abort(code, "x" * self.random.choice((0, 10, 5_000)))


@asynccontextmanager
async def a_hostile_server() -> AsyncIterator[HostileServer]:
    created = HostileServer()
    await created.server.start()
    yield created
    await created.server.stop(None)


def a_response(random: Random, method: Any) -> bytes:
    if random.random() < 0.3:
        return some_bytes(random)
    complete: bytes = a_message(random, method.output_type).SerializeToString()
    return complete


async def call_agent(cluster: Cluster, random: Random) -> None:
    """A call that the scheduler forwards to the agent."""
    name = random.choice(("StreamLogs", "Exec", "ListVolumes", "AddImage", "ListImages"))
    method = SERVICE.methods_by_name[name]
    known: dict[str, list[Any]] = {
        "AddImage": [
            pb.AddImageRequest(start=pb.AddImageStart(name="tiny", node_ids=[TUNNELLED, HOSTILE])),
            pb.AddImageRequest(data=b"x" * 100),
        ],
        "Exec": [
            pb.ExecInput(start=pb.ExecStart(workload_id="victim", command=["true"])),
            *(pb.ExecInput(stdin=b"x") for _ in range(random.choice((0, 40)))),
        ],
        "ListImages": [pb.ListImagesRequest()],
        "ListVolumes": [pb.ListVolumesRequest()],
        "StreamLogs": [pb.LogsRequest(workload_id="victim", follow=True)],
    }
    encoded = [request.SerializeToString() for request in known[name]]
    await call(cluster.control.channel, method, encoded)


class HostileAgent:
    """A node with one stream to the scheduler that responds to each call with random messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.random = Random(0)
        self.registered = asyncio.Event()
        self._raw: Any = cluster.control.channel.stream_stream(
            f"/{SERVICE.full_name}/ControlStream"
        )
        self._numbers = iter(range(1, 1 << 60))

    async def serve(self) -> None:
        """The scheduler may end a stream after an invalid message: then a new one is opened."""
        while True:
            stream = self._raw()
            try:
                await self._serve_stream(stream)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await asyncio.sleep(0.01)
            finally:
                stream.cancel()

    async def _serve_stream(self, stream: Any) -> None:
        register = pb.ControlMessage(register=valid("RegisterNode"))
        register.register.node_id = TUNNELLED
        register.register.features.append(feature.CONTROL_STREAM)
        register.register.grpc_endpoint = ""
        await stream.write(register.SerializeToString())
        async for data in stream:
            message = pb.ControlMessage.FromString(data)
            self.registered.set()
            if message.HasField("call"):
                for frame in self._answers(message.call):
                    await stream.write(frame)
            elif self.random.random() < 0.3:
                heartbeat = pb.HeartbeatRequest(node_id=TUNNELLED, complete=True)
                number = next(self._numbers)
                complete = pb.ControlMessage(heartbeat=heartbeat, number=number)
                await stream.write(complete.SerializeToString())

    def _answers(self, call: pb.StreamCall) -> list[bytes]:
        method = AGENT.methods_by_name.get(call.method)
        if method is None or call.cancel:
            return []
        random = self.random
        frames = []
        for _ in range(random.choice((0, 1, 1, 1, 3, 30))):
            reply = pb.StreamReply(id=call.id)
            match random.randrange(6):
                case 0:
                    reply.response = some_bytes(random)
                case 1:
                    reply.taken = random.choice(WINDOWS)
                case 2:
                    reply.code = random.choice((0, 1, 2, 5, 13, 14, 16, 17, 99, -1))
                    reply.message = "x" * random.choice((0, 10, 70_000))
                case 3:
                    reply = a_message(random, pb.StreamReply.DESCRIPTOR)
                    reply.id = random.choice((call.id, call.id - 1, call.id + 1, 0))
                case _:
                    reply.response = a_response(random, method)
            reply.last = random.random() < 0.3
            frames.append(pb.ControlMessage(reply=reply).SerializeToString())
        if random.random() < 0.02:
            frames.append(some_bytes(random))
        random.shuffle(frames)
        return frames
