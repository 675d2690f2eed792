"""Fuzzers of the live services: whatever a peer sends, the process survives and serves everyone else.

An answer is a result, or a refusal with a code that the contract has; INTERNAL and UNKNOWN are defects of
ours, and so is every exception that was contained.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from fuzz.budget import inputs
from fuzz.generator import a_change, a_message, some_bytes
from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, brisk
from shells.scheduler.stores import TroubledStore

SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
CALL_SECONDS = 20.0
NODE = "steady"  # no fuzzed request names it
DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
# These replace everything that is stored, at the word of an admin.
RECOVERY = frozenset({"RestoreSnapshot", "RebuildFromAgents", "AcceptEmpty"})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, brisk()) as cluster:
        yield cluster
    await store.store.close()


def valid(name: str) -> Any:
    """A request that is accepted as it is, to be changed a little."""
    container = pb.ContainerSpec(image="nginx")
    spec = pb.WorkloadSpec(type="container", container=container)
    capabilities = pb.NodeCapabilities(
        cpu_total_millicores=1000, memory_total_mb=1024, supported_workload_types=["container"]
    )
    known = {
        "ApplyWorkload": pb.ApplyWorkloadRequest(workload_id="fuzzed", spec=spec),
        "DeleteWorkload": pb.DeleteWorkloadRequest(workload_id="fuzzed"),
        "RegisterNode": pb.RegisterNodeRequest(
            node_id="fuzzed", capabilities=capabilities, grpc_endpoint="127.0.0.1:1"
        ),
        "Heartbeat": pb.HeartbeatRequest(
            node_id="fuzzed",
            usage=pb.NodeUsage(),
            complete=True,
            workload_statuses=[pb.WorkloadStatus(workload_id="canary", state="Running", epoch=1)],
        ),
        "PlanWorkloads": pb.PlanWorkloadsRequest(
            workloads=[pb.ApplyWorkloadRequest(workload_id="planned", spec=spec)]
        ),
    }
    return known.get(name)


def a_request(random: Random, method: Any) -> Any:
    request = valid(method.name)
    if request is None or random.random() < 0.4:
        return a_message(random, method.input_type)
    if random.random() < 0.9:
        a_change(random, request)
    return request


async def call(cluster: Cluster, seed: int, method: Any, request: Any) -> None:
    try:
        await _call(cluster, method, request)
    except grpc.aio.AioRpcError as err:
        code = err.code()
        problem = f"{method.name}: {code} {err.details()}"
    else:
        return
    if method.server_streaming and code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return  # it would have gone on
    assert code not in DEFECTS, f"PERSYS_FUZZ_SEED={seed} {problem}\n{request}"


async def _call(cluster: Cluster, method: Any, request: Any) -> None:
    stub = getattr(cluster.control.stub, method.name)
    argument = one(request) if method.client_streaming else request
    async with asyncio.timeout(CALL_SECONDS):
        if not method.server_streaming:
            await stub(argument, timeout=CALL_SECONDS)
            return
        async for _ in stub(argument, timeout=0.3 if "Watch" in method.name else 2):
            break


async def one(request: Any) -> AsyncIterator[Any]:
    yield request


async def check_canary(cluster: Cluster) -> None:
    """A workload that nothing touched is as it was, and new ones run."""
    assert (await cluster.control.workload("canary")).status == "Running"
    after = valid("ApplyWorkload")
    after.workload_id = "after"
    after.spec.placement.constraints.append(f"node.id == {NODE}")
    assert (await cluster.control.send(after)).success
    await cluster.control.until("after", "Running", within=60)
    await cluster.control.delete("after")
    assert contained(await metrics(cluster)) == []


async def metrics(cluster: Cluster) -> str:
    address = f"http://127.0.0.1:{cluster.settings.metrics_port}/metrics"
    answer: bytes = await asyncio.to_thread(lambda: urlopen(address, timeout=20).read())
    return answer.decode()


def contained(text: str) -> list[str]:
    counted = "persys_internal_errors_total{"
    return [line for line in text.splitlines() if line.startswith(counted)]


async def test_every_call_to_the_scheduler_is_answered_or_refused(cluster: Cluster) -> None:
    await cluster.join(NODE)
    await cluster.control.apply("canary")
    await cluster.control.until("canary", "Running", within=60)
    methods = [
        m for m in SERVICE.methods if m.name not in RECOVERY | {"ControlStream", "DrainNode"}
    ]

    for seed, random in inputs():
        method = random.choice(methods)
        await call(cluster, seed, method, a_request(random, method))

    await check_canary(cluster)


async def test_a_control_stream_that_sends_anything_harms_nobody_else(cluster: Cluster) -> None:
    await cluster.join(NODE)
    await cluster.control.apply("canary")
    await cluster.control.until("canary", "Running", within=60)
    raw: Any = cluster.control.channel.stream_stream(f"/{SERVICE.full_name}/ControlStream")

    for _seed, random in inputs():
        register = pb.ControlMessage(register=valid("RegisterNode")).SerializeToString()
        frames = [register] if random.random() < 0.8 else []
        for _ in range(random.randint(1, 6)):
            message = a_message(random, pb.ControlMessage.DESCRIPTOR)
            whole = message.SerializeToString()
            frames.append(whole if random.random() < 0.8 else some_bytes(random))
        stream = raw()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                for frame in frames:
                    await stream.write(frame)
                await stream.done_writing()
                async for _ in stream:
                    pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            continue

    await check_canary(cluster)
