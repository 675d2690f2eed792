"""Fuzzers of the gateway: every route with arbitrary requests, WebSocket frames, and signed webhooks.

A response of 500 or above is a defect, unless a node or the scheduler is unreachable. The process survives,
contains no exception, and its memory stays bounded.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from e2e.gateways import Gateway
from fuzz import corpus
from fuzz.budget import rounds
from fuzz.generator import a_message, some_bytes
from fuzz.http_requests import HttpResponse, Route, draw, exchange
from fuzz.mutation import changed
from fuzz.test_scheduler import NODE, a_cluster_with_a_canary
from fuzz.test_scheduler import valid as valid_call
from persys.gateway.http.transcoding import request_descriptor
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES
from shells.gateway.running_gateway import RunningGateway, a_gateway, quiet
from shells.gateway.webhooks.test_github import SECRET, a_push, hooked_settings
from shells.scheduler.harness import Cluster

MEMORY_GROWTH_MAX_MB = 150
IN_CLUSTER = "/clusters/{cluster}"
# RPCs that replace all stored records.
RECOVERY = ("RestoreSnapshot", "RebuildFromAgents", "AcceptEmpty")
OWN_ROUTES = (
    "/", "/health", "/metrics", "/openapi.json", "/clusters", f"{API}/clusters", f"{API}/audit",
    f"{API}/gitops", f"{API}/specs/parse",
    f"{API}/summary", "/nothing", f"{API}/nothing/{{x}}", "/static/{x}", "/{x}",
)  # fmt: skip


def body_of(rpc: str) -> Any:
    message = valid_call(rpc)
    return None if message is None else MessageToDict(message, preserving_proto_field_name=True)


def all_routes() -> list[Route]:
    found = []
    for route in (*ROUTES, *CONTRACT_ROUTES):
        if route.rpc in RECOVERY:
            continue
        names = tuple(field.name for field in request_descriptor(route.rpc).fields)
        prefix = API if route in ROUTES else ""
        for place in ("", IN_CLUSTER):
            body = (lambda rpc=route.rpc: body_of(rpc) or {}) if route.body else (lambda: None)
            found.append(Route(route.method, prefix + place + route.path, body, names))
    parse = {"text": json.dumps(corpus.FULL_SPECS[0])}
    for path in OWN_ROUTES:
        found.append(Route("GET", path))
        found.append(Route("POST", path, lambda: parse))
    return found


def check(answer: HttpResponse) -> None:
    is_away = answer.status == 503 and any(word in answer.text for word in AWAY)
    assert answer.status < 500 or is_away, answer.text


# Allowed texts of a 503: a node is unreachable, or the limit of streams is reached.
AWAY = ("node", "agent", "streams", "scheduler")


@contextmanager
def a_gateway_process(directory: Path, cluster: Cluster) -> Iterator[Gateway]:
    gateway = Gateway(directory, {"default": f"127.0.0.1:{cluster.settings.grpc_port}"})
    gateway.process.set("PERSYS_GATEWAY_REQUESTS_PER_SECOND", "0")
    gateway.process.launch()
    try:
        yield gateway
    finally:
        gateway.process.close()


def memory_mb(gateway: Gateway) -> float:
    pages = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def until_serving(gateway: Gateway) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                response = await exchange(gateway.port, request("GET", "/health"))
            except AssertionError:
                response = HttpResponse(0, "")
            if response.status == 200:
                return
            assert gateway.process.runs, gateway.process.log[-4000:]
            await asyncio.sleep(0.1)


def request(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


async def test_every_route_answers_or_refuses(tmp_path: Path) -> None:
    routes = all_routes()
    for one_round in rounds("gateway", size=600):
        directory = tmp_path / str(one_round.first_seed)
        directory.mkdir()
        async with a_cluster_with_a_canary() as cluster:
            with one_round, a_gateway_process(directory, cluster) as gateway:
                await until_serving(gateway)
                before = memory_mb(gateway)
                for one in one_round:
                    with one as random:
                        sent = draw(random, random.choice(routes), corpus.spec_documents())
                        response = await exchange(gateway.port, sent)
                        assert gateway.process.runs, gateway.process.log[-4000:]
                        check(response)
                await check_gateway(gateway, memory_before=before)


async def check_gateway(gateway: Gateway, *, memory_before: float) -> None:
    canary = await exchange(gateway.port, request("GET", f"{API}/workloads/canary"))
    assert canary.status == 200
    assert "Running" in canary.text
    metrics = await exchange(gateway.port, request("GET", "/metrics"))
    assert metrics.status == 200
    before, found, after = gateway.process.log.partition("Traceback")
    assert not found, before[-500:] + found + after[:4000]
    assert "persys_internal_errors_total{" not in metrics.text
    grown = memory_mb(gateway) - memory_before
    assert grown < MEMORY_GROWTH_MAX_MB, f"memory grew by {grown:.0f} MB"


@asynccontextmanager
async def a_running_gateway(cluster: Cluster) -> AsyncIterator[RunningGateway]:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    async with a_gateway(quiet(scheduler_addr=(address,))) as running:
        yield running


async def check_running(running: RunningGateway) -> None:
    status, reported = await running.get(f"{API}/workloads/canary")
    assert (status, reported["workload"]["status"]) == (200, "Running")
    async with running.session.get("/metrics") as response:
        assert "persys_internal_errors_total{" not in await response.text()


async def test_invalid_websocket_frames_do_not_affect_other_clients() -> None:
    for one_round in rounds("gateway_sockets", size=100):
        with one_round:
            async with a_cluster_with_a_canary() as cluster, a_running_gateway(cluster) as running:
                for one in one_round:
                    with one as random:
                        check(await exchange(running.gateway.port, a_session(random)))
                await check_running(running)


def a_session(random: Random) -> bytes:
    """A handshake, mostly valid, and frames that follow at once."""
    name = random.choice(("canary", "canary", "nothing", "%ff"))
    query = random.choice(
        ("", "?command=true", "?console=true", "?frames=binary&command=a", "?command=%00")
    )
    key = base64.b64encode(random.randbytes(16)).decode()
    headers = {
        "Host": "x",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": random.choice((key, key, key, "x", "")),
        "Sec-WebSocket-Version": random.choice(("13", "13", "13", "99", "")),
        "Sec-WebSocket-Protocol": random.choice(("persys.exec.v1", "x", ", ,")),
        "Sec-WebSocket-Extensions": random.choice(
            (
                "",
                "",
                "permessage-deflate",
                "permessage-deflate; server_max_window_bits=99",
                "x; y=z",
            )
        ),
    }
    lines = "".join(f"{header}: {value}\r\n" for header, value in headers.items() if value)
    head = f"GET {API}/workloads/{name}/exec{query} HTTP/1.1\r\n{lines}\r\n"
    return head.encode() + b"".join(a_frame(random) for _ in range(random.randint(0, 6)))


def a_frame(random: Random) -> bytes:
    """A WebSocket frame, mostly valid."""
    opcode = random.choice((0, 1, 1, 1, 2, 2, 8, 9, 10, 3, 15))
    payload = a_payload(random, opcode)
    first = (0x80 if random.random() < 0.9 else 0) | (0x40 if random.random() < 0.1 else 0) | opcode
    masked = 0x80 if random.random() < 0.95 else 0
    size = len(payload)
    if random.random() < 0.05:
        size = random.choice((0, 125, 65535, 2**63 - 1, 2**64 - 1))
    if size < 126:
        head = bytes([first, masked | size])
    elif size < 65536:
        head = bytes([first, masked | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first, masked | 127]) + struct.pack(">Q", size)
    mask = random.randbytes(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def a_payload(random: Random, opcode: int) -> bytes:
    if random.random() < 0.15:
        return some_bytes(random)
    start = pb.ExecInput(start=pb.ExecStart(workload_id="canary", command=["true"]))
    message = start if random.random() < 0.5 else a_message(random, pb.ExecInput.DESCRIPTOR)
    if opcode == 1:
        plain = MessageToDict(message, preserving_proto_field_name=True)
        text = json.dumps(changed(random, plain) if random.random() < 0.7 else plain)
        return text.encode()[:60_000]
    encoded: bytes = message.SerializeToString()
    return encoded[:60_000]


async def test_signed_webhooks_are_accepted_or_refused() -> None:
    for one_round in rounds("webhooks", size=100):
        with one_round:
            async with (
                a_cluster_with_a_canary() as cluster,
                a_gateway(hooked_settings(cluster)) as running,
            ):
                for one in one_round:
                    with one as random:
                        check(await exchange(running.gateway.public_port, a_delivery(random)))
                await check_running(running)


def a_delivery(random: Random) -> bytes:
    document = a_push()
    if random.random() < 0.9:
        document = changed(
            random, document, ({"deleted": True, "commits": [], "head_commit": None},)
        )
    body = json.dumps(document).encode()
    if random.random() < 0.1:
        body = some_bytes(random)
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    now = SystemClock().now().strftime("%a, %d %b %Y %H:%M:%S +0000")
    headers = {
        "Host": "x",
        "Connection": "close",
        "Content-Length": str(len(body)),
        "X-Hub-Signature-256": random.choice((f"sha256={signature}",) * 8 + ("sha256=x", "sha1=a", "")),
        "X-GitHub-Delivery": random.choice(("d1", "x" * 300, "\xff", f"{random.random()}")),
        "X-GitHub-Event": random.choice(("push", "push", "push", "ping", "\xff")),
        "Date": random.choice(
            ("", "", now, "x", "Mon, 01 Jan 0001 00:00:00 -0000", "Mon, 01 Jan 0001 00:00:00 +2359",
             "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 99 Jan 2026 99:99:99 +0000", "9" * 5000)
        ),
    }  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return f"POST /webhooks/github HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@pytest.mark.parametrize("name", [NODE, "canary"])
def test_no_fuzzed_body_contains_a_name_that_is_checked(name: str) -> None:
    bodies = [body_of(route.rpc) for route in ROUTES]

    assert f'"{name}"' not in json.dumps([body for body in bodies if body and "spec" in body])
