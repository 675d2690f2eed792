"""Fuzzers of a live agent: its service, called directly and through the stream of a hostile scheduler.

The agent survives all input, a canary stays Running, new workloads run, every call ends with a code of the
contract, and no exception was contained.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fuzz.agents import CANARY, SERVICE, RunningAgent, an_agent_in_memory, an_agent_on_docker
from fuzz.budget import rounds
from fuzz.generator import a_change, a_message, some_bytes
from fuzz.mutation import TEXTS
from fuzz.services import call, requests_of
from persys.wire.gen.agent.v1 import agent_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2

FUZZED = "fuzzed"
METADATA = (
    (("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),),
    (("traceparent", "x" * 200),),
    (("persys-identity", "admin/root"), ("authorization", "Bearer x")),
    (),
)


def valid(served: RunningAgent, name: str) -> Any:
    """A valid request, to be mutated."""
    known = {
        "AddImage": pb.AddImageRequest(start=pb.AddImageStart(name="tiny", size_bytes=512)),
        "ApplyWorkload": served.order(FUZZED),
        "DeleteVolume": pb.DeleteVolumeRequest(workload_id=FUZZED, name="data"),
        "DeleteWorkload": pb.DeleteWorkloadRequest(id=FUZZED),
        "Exec": pb.ExecInput(start=pb.ExecStart(workload_id=CANARY, command=["cat"])),
        "GetWorkloadStatus": pb.GetWorkloadStatusRequest(id=CANARY),
        "ListActions": pb.ListActionsRequest(workload_id=CANARY, limit=5),
        "StreamLogs": pb.LogsRequest(workload_id=CANARY, tail=5),
    }
    return known.get(name)


def streamed(random: Random, served: RunningAgent, method: Any) -> list[bytes]:
    """The requests of one call. A stream often begins with valid ones."""
    requests = requests_of(random, method, partial(valid, served, method.name))
    if method.client_streaming and random.random() < 0.7:
        requests.insert(0, valid(served, method.name).SerializeToString())
    return requests


async def test_an_agent_answers_or_refuses_every_call(tmp_path: Path) -> None:
    for one_round in rounds("agent_calls", size=300):
        directory = tmp_path / str(one_round.first_seed)
        directory.mkdir()
        with one_round:
            async with an_agent_in_memory(directory) as served:
                await served.run(CANARY)
                for one in one_round:
                    with one as random:
                        method = random.choice(SERVICE.methods)
                        requests = streamed(random, served, method)
                        await call(
                            served.channel, method, requests, metadata=random.choice(METADATA)
                        )
                await served.check()


async def test_an_agent_on_docker_answers_or_refuses_every_call(
    tmp_path: Path, demo_image: str
) -> None:
    names = ("ApplyWorkload", "Exec", "Exec", "StreamLogs", "StreamLogs", "GarbageCollect")
    for one_round in rounds("agent_on_docker", size=150):
        directory = tmp_path / str(one_round.first_seed)
        directory.mkdir()
        with one_round:
            async with an_agent_on_docker(directory, demo_image) as served:
                await served.run(CANARY)
                for one in one_round:
                    with one as random:
                        method = SERVICE.methods_by_name[random.choice(names)]
                        if method.name == "ApplyWorkload":
                            requests = [an_order_for_docker(random, served, directory)]
                        else:
                            requests = streamed(random, served, method)
                        await call(served.channel, method, requests)
                await served.check()


def an_order_for_docker(random: Random, served: RunningAgent, directory: Path) -> bytes:
    """Only images that exist locally or nowhere, and only paths below the directory of the test."""
    order = served.order(FUZZED)
    container = order.spec.container
    container.volumes.add(host_path="x", container_path="/x", read_only=True)
    container.files.add(path="/etc/app.conf", content=b"x", mode=0o444)
    container.ports.add(container_port=80, protocol="tcp")
    container.env["A"] = "b"
    a_change(random, order)
    container.image = random.choice((served.image, "127.0.0.1:1/none"))
    container.privileged = False
    for volume in container.volumes:
        volume.host_path = f"{directory}/{volume.host_path[:300]}"
    order.spec.ClearField("compose") if order.spec.HasField("compose") else None
    order.id = FUZZED if order.spec.HasField("container") else ""
    order.revision_id = f"r{random.randrange(1000)}"
    return order.SerializeToString()


class HostileScheduler:
    """A scheduler that sends arbitrary messages on the control stream of its agent."""

    def __init__(self) -> None:
        self.beats = 0
        self.port = 0
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._server = grpc.aio.server()

    async def start(self) -> None:
        service = control_pb2.DESCRIPTOR.services_by_name["AgentControl"].full_name
        # Without serializers, so that arbitrary bytes can be sent.
        handlers: dict[str, Any] = {
            "ControlStream": grpc.stream_stream_rpc_method_handler(self._serve_stream)
        }
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def send(self, frame: bytes) -> None:
        """Send on the open stream, or the next one.

        Responses to a registration are left out: they may request a heartbeat only every five minutes.
        """
        if not is_registration(frame):
            await self._outgoing.put(frame)

    async def end_stream(self) -> None:
        """Stop sending hostile messages: the agent opens another stream."""
        while not self._outgoing.empty():
            self._outgoing.get_nowait()
        await self._outgoing.put(None)

    async def _serve_stream(self, messages: AsyncIterator[bytes], context: Any) -> None:
        outgoing = self._outgoing = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(messages))
            reading.add_done_callback(lambda _: outgoing.put_nowait(None))
            while (frame := await outgoing.get()) is not None:
                await context.write(frame)
            reading.cancel()

    async def _read(self, messages: AsyncIterator[bytes]) -> None:
        async for data in messages:
            message = control_pb2.ControlMessage.FromString(data)
            if (response := self._answer(message)) is not None:
                await self._outgoing.put(response.SerializeToString())

    def _answer(self, message: Any) -> Any:
        match message.WhichOneof("message"):
            case "register":
                response = control_pb2.RegisterNodeResponse(
                    accepted=True, heartbeat_interval_seconds=1, cluster_uid="u1", instance_id="i1"
                )
                return control_pb2.ControlMessage(registered=response)
            case "heartbeat":
                self.beats += 1
                heartbeat = control_pb2.HeartbeatResponse(acknowledged=True, leads=True)
                return control_pb2.ControlMessage(heartbeat_answer=heartbeat, number=message.number)
        return None


def is_registration(frame: bytes) -> bool:
    with suppress(DecodeError):
        return bool(control_pb2.ControlMessage.FromString(frame).HasField("registered"))
    return False


def frames_for(random: Random, served: RunningAgent, ids: "list[int]") -> list[bytes]:
    """Calls, parts of calls, windows and responses, in any order."""
    frames = []
    for _ in range(random.randint(1, 8)):
        message = control_pb2.ControlMessage()
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                message.call.CopyFrom(a_call(random, served, ids))
            case 4 | 5 | 6:
                message.call.CopyFrom(more_of_a_call(random, served, ids))
            case 7:
                message.CopyFrom(a_message(random, control_pb2.ControlMessage.DESCRIPTOR))
            case 8:
                message.registered.CopyFrom(
                    a_message(random, control_pb2.RegisterNodeResponse.DESCRIPTOR)
                )
            case _:
                message.heartbeat_answer.acknowledged = random.random() < 0.9
                message.number = random.choice((0, 1, 2, 2**63))
        frames.append(message.SerializeToString())
    if random.random() < 0.05:
        frames.append(some_bytes(random))
    return frames


def a_call(random: Random, served: RunningAgent, ids: list[int]) -> control_pb2.StreamCall:
    method = random.choice(SERVICE.methods)
    (request, *_) = [*streamed(random, served, method), b""]
    ids.append(random.choice((len(ids) + 1, random.choice([*ids, 1]), 2**64 - 1, 0)))
    created = control_pb2.StreamCall(
        id=ids[-1],
        method=random.choice((method.name, method.name, method.name, "Nothing", "__init__")),
        request=request,
        window=random.choice((0, 1, 16, 16, 16, -1, 2**31 - 1, 10_000)),
    )
    if random.random() < 0.2:
        created.metadata["traceparent"] = random.choice([t for t in TEXTS if t.isascii()])
    return created


def more_of_a_call(random: Random, served: RunningAgent, ids: list[int]) -> control_pb2.StreamCall:
    method = random.choice([one for one in SERVICE.methods if one.client_streaming])
    (request, *_) = [*streamed(random, served, method), b""]
    return control_pb2.StreamCall(
        id=random.choice([*ids, 7]),
        more=random.random() < 0.7,
        request=request,
        last=random.random() < 0.2,
        cancel=random.random() < 0.2,
        taken=random.choice((0, 0, 1, 8, -1, 2**31 - 1)),
    )


async def test_an_agent_survives_a_hostile_scheduler(tmp_path: Path) -> None:
    for one_round in rounds("agent_stream", size=200):
        directory = tmp_path / str(one_round.first_seed)
        directory.mkdir()
        scheduler = HostileScheduler()
        await scheduler.start()
        address = f"127.0.0.1:{scheduler.port}"
        with one_round:
            async with an_agent_in_memory(directory, scheduler=address) as served:
                await served.run(CANARY)
                ids: list[int] = []
                for one in one_round:
                    with one as random:
                        for frame in frames_for(random, served, ids):
                            await scheduler.send(frame)
                        await served.is_running(CANARY)
                await scheduler.end_stream()
                await check_connected(served, scheduler)
                await served.check()
        await scheduler.stop()


async def check_connected(served: RunningAgent, scheduler: HostileScheduler) -> None:
    """The agent opened another stream, and sends heartbeats on it."""
    heartbeats = scheduler.beats

    async def sends_heartbeats() -> bool:
        return scheduler.beats > heartbeats

    await served.until(sends_heartbeats, "a heartbeat")
