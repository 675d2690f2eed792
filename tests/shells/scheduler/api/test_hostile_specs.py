"""Specs whose YAML expands without bound: each RPC refuses them, and other calls are served."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise

import grpc
import pytest

from persys.scheduler.queries import explain
from persys.scheduler.reconcile import intent
from persys.wire.control.spec_decode import ParsedSpec, parse_spec
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster

NAMES = "abcdefghi"
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in pairwise(NAMES)
)
SPECS = {
    "meta_data": pb.WorkloadSpec(
        vm=pb.VMSpec(vcpus=1, memory_mb=512, cloud_init=pb.CloudInitConfig(meta_data=MERGES))
    ),
    "network_config": pb.WorkloadSpec(
        vm=pb.VMSpec(vcpus=1, memory_mb=512, cloud_init=pb.CloudInitConfig(network_config=MERGES))
    ),
    "compose": pb.WorkloadSpec(compose=pb.ComposeSpec(inline_yaml=MERGES + "services: {}\n")),
}


async def applied(cluster: Cluster, spec: pb.WorkloadSpec) -> str:
    request = pb.ApplyWorkloadRequest(workload_id="web", spec=spec)
    response: pb.ApplyWorkloadResponse = await cluster.control.stub.ApplyWorkload(
        request, timeout=30
    )
    return "" if response.success else response.error_message


async def planned(cluster: Cluster, spec: pb.WorkloadSpec) -> str:
    request = pb.ApplyWorkloadRequest(workload_id="web", spec=spec)
    response: pb.PlanWorkloadsResponse = await cluster.control.stub.PlanWorkloads(
        pb.PlanWorkloadsRequest(workloads=[request]), timeout=30
    )
    (plan,) = response.plans
    return plan.reason if plan.action == "refused" else ""


async def measured(cluster: Cluster, spec: pb.WorkloadSpec) -> str:
    try:
        await cluster.control.stub.GetCapacity(pb.GetCapacityRequest(spec=spec), timeout=30)
    except grpc.aio.AioRpcError as err:
        return err.details() or ""
    return ""


@pytest.mark.parametrize("ask", [applied, planned, measured])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
async def test_yaml_that_expands_without_bound_is_refused_by_every_call(
    cluster: Cluster,
    spec: pb.WorkloadSpec,
    ask: Callable[[Cluster, pb.WorkloadSpec], Awaitable[str]],
) -> None:
    async with asyncio.timeout(30):
        refusal = await ask(cluster, spec)

    assert "after aliases are expanded" in refusal
    assert await cluster.control.names() == []


@pytest.mark.parametrize("ask", [applied, planned, measured])
async def test_yaml_is_parsed_beside_the_event_loop_by_every_call(
    cluster: Cluster,
    ask: Callable[[Cluster, pb.WorkloadSpec], Awaitable[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    def parse(spec: pb.WorkloadSpec) -> ParsedSpec:
        threads.append(threading.current_thread())
        return parse_spec(spec)

    monkeypatch.setattr(intent, "parse_spec", parse)
    monkeypatch.setattr(explain, "parse_spec", parse)

    await ask(cluster, SPECS["compose"])

    assert threads
    assert threading.current_thread() not in threads
