"""Streaming routes: events, logs, snapshots, images and exec."""

import base64
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSMsgType

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.gateway.running_gateway import RunningGateway
from shells.scheduler.api.test_images import a_store
from shells.scheduler.api.test_logs_exec import LogsAgent, a_logs_agent
from shells.scheduler.harness import Cluster


@pytest.fixture
async def logs_agent(cluster: Cluster) -> AsyncIterator[LogsAgent]:
    async with a_logs_agent(cluster, "called") as logs_agent:
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        yield logs_agent


async def events_in(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            event[name] = value
        elif "data" in event:
            yield event
            event = {}


async def test_a_watch_resumes_after_the_last_event_id(
    api: RunningGateway, cluster: Cluster
) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web")
    path = "/api/v1/events/watch?after_sequence=0"
    async with api.session.get(path) as response:
        assert response.content_type == "text/event-stream"
        first = await anext(events_in(response))
    async with api.session.get(path, headers={"Last-Event-ID": first["id"]}) as response:
        second = await anext(events_in(response))

    assert int(second["id"]) == int(first["id"]) + 1
    assert json.loads(first["data"])["kind"] == first["event"]


async def test_a_watch_of_expired_events_is_410(api: RunningGateway) -> None:
    status, problem = await api.get("/api/v1/events/watch", headers={"Last-Event-ID": "99999"})

    assert (status, problem["code"]) == (410, "OUT_OF_RANGE")


async def test_logs_are_returned_as_raw_bytes(api: RunningGateway, logs_agent: LogsAgent) -> None:
    async with api.session.get("/api/v1/workloads/web/logs?tail=7&service=db") as response:
        assert response.content_type == "text/plain"
        assert await response.read() == b"out\nerr\n"
    assert (logs_agent.logs_asked[0].tail, logs_agent.logs_asked[0].service) == (7, "db")


async def test_logs_are_returned_as_ndjson(api: RunningGateway, logs_agent: LogsAgent) -> None:
    accept = {"Accept": "application/x-ndjson"}
    async with api.session.get("/api/v1/workloads/web/logs", headers=accept) as response:
        lines = [json.loads(line) async for line in response.content]

    assert [base64.b64decode(line["data"]) for line in lines] == [b"out\n", b"err\n"]
    assert lines[1]["stream"] == "stderr"


async def test_a_snapshot_is_saved_and_restored(api: RunningGateway, cluster: Cluster) -> None:
    await cluster.control.apply("web")
    async with api.session.get("/api/v1/snapshot") as response:
        snapshot = await response.read()

    status, problem = await api.ask("PUT", "/api/v1/snapshot", data=snapshot)

    assert status == 409  # only in recovery
    assert problem["answer"]["reason"]
    assert (await api.ask("PUT", "/api/v1/snapshot", data=b"garbage"))[0] == 400


async def test_an_image_is_forwarded_to_the_nodes(api: RunningGateway, cluster: Cluster) -> None:
    _, store = await a_store(cluster, "n1")
    image = b"x" * 1_000_000

    async with api.session.put("/api/v1/images/debian?node_ids=n1", data=image) as response:
        assert response.status == 200
        lines = [json.loads(line) async for line in response.content]

    assert store.images["debian"] == image
    assert (lines[-1]["node_id"], lines[-1]["received_bytes"]) == ("n1", "1000000")
    assert (lines[-1]["done"], lines[-1]["sha256"]) == (True, "abc")


async def test_an_image_without_a_matching_node_is_refused(api: RunningGateway) -> None:
    status, problem = await api.ask("PUT", "/api/v1/images/debian", data=b"x")

    assert (status, problem["code"]) == (422, "FAILED_PRECONDITION")


async def test_exec_over_a_websocket_with_protobuf_frames(
    api: RunningGateway, logs_agent: LogsAgent
) -> None:
    async with api.session.ws_connect("/api/v1/workloads/web/exec") as socket:
        start = pb.ExecInput(start=pb.ExecStart(workload_id="other", command=["echo"]))
        await socket.send_bytes(start.SerializeToString())
        assert await socket.receive_bytes() == b""
        await socket.send_bytes(pb.ExecInput(stdin=b"hello").SerializeToString())
        chunk = pb.ExecOutput.FromString(await socket.receive_bytes())
        await socket.send_bytes(pb.ExecInput(stdin_closed=True).SerializeToString())
        last = pb.ExecOutput.FromString(await socket.receive_bytes())
        ended = await socket.receive()

    assert chunk.stdout == b"HELLO"
    assert last.exit.code == 3
    assert (ended.type, ended.data) == (WSMsgType.CLOSE, 1000)


async def test_exec_over_a_websocket_with_json_frames(
    api: RunningGateway, logs_agent: LogsAgent
) -> None:
    async with api.session.ws_connect("/api/v1/workloads/web/exec?command=echo") as socket:
        assert await socket.receive_str() == "{}"
        await socket.send_str(json.dumps({"stdin": base64.b64encode(b"hi").decode()}))
        message = json.loads(await socket.receive_str())

    assert base64.b64decode(message["stdout"]) == b"HI"


@pytest.mark.parametrize(
    ("path", "code"), [("web/exec?command=refuse", 4422), ("none/exec?command=x", 4404)]
)
async def test_a_refused_exec_closes_with_the_status(
    api: RunningGateway, logs_agent: LogsAgent, path: str, code: int
) -> None:
    async with api.session.ws_connect(f"/api/v1/workloads/{path}") as socket:
        ended = await socket.receive()

    assert (ended.type, ended.data) == (WSMsgType.CLOSE, code)
    assert ended.extra


async def test_exec_without_a_websocket_is_426(api: RunningGateway) -> None:
    assert (await api.get("/api/v1/workloads/web/exec"))[0] == 426


async def test_streams_end_when_the_gateway_stops(api: RunningGateway, cluster: Cluster) -> None:
    async with api.session.get("/api/v1/events/watch") as response:
        await api.gateway.stop()
        assert (await response.read()).endswith(b"\n\n")
