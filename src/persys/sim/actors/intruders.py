"""Peers that no operator wants: the clone of a node's disk, and a node that reports anything.

A clone has the node's id and its journal, and a runtime of its own: whatever it starts is a second copy that
no record accounts for. A hostile node has a valid identity and no capacity; what it says about workloads of
others must change nothing.
"""

import asyncio
from contextlib import suppress
from random import Random

import grpc

from persys.sim.life import Life
from persys.sim.network import Network
from persys.wire.gen.control.v1 import control_pb2

HOSTILE = "x1"
REPORT_SECONDS = 0.7
CALL_SECONDS = 5.0
STATUSES_MAX = 40
EPOCHS = (0, 1, 2, 9_999, 10_001, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -1)
STATES = ("Running", "Stopped", "Failed", "Pending", "Unknown", "", "x" * 300)
TEXTS = ("", "ok", "x" * 5_000, "\x00", "\x1b[2J", "workload not found", "../../nodes/n1")


async def report_anything(
    network: Network, life: Life, schedulers: list[str], workload_ids: list[str], random: Random
) -> None:
    """Register and send heartbeats with made-up content, until the process is ended."""
    while life.alive:
        target = random.choice(schedulers)
        with suppress(grpc.aio.AioRpcError):
            if random.random() < 0.2:
                await network.call(
                    life, target, "RegisterNode", _registration(random), timeout=CALL_SECONDS
                )
            await network.call(
                life, target, "Heartbeat", _report(random, workload_ids), timeout=CALL_SECONDS
            )
        await asyncio.sleep(random.uniform(0, 2 * REPORT_SECONDS))


def _registration(random: Random) -> control_pb2.RegisterNodeRequest:
    return control_pb2.RegisterNodeRequest(
        node_id=HOSTILE,
        grpc_endpoint=HOSTILE,
        capabilities=control_pb2.NodeCapabilities(
            cpu_total_millicores=0, memory_total_mb=0, supported_workload_types=["container"]
        ),
        features=["push-status", *(random.choice(TEXTS) for _ in range(3))],
        labels={"zone": random.choice(TEXTS)},
        cluster_uid=random.choice(TEXTS),
        workload_count=random.choice((0, 1, 2**31 - 1)),
    )


def _report(random: Random, workload_ids: list[str]) -> control_pb2.HeartbeatRequest:
    names = [*workload_ids, *(f"made-up-{random.randrange(500)}" for _ in range(10))]
    count = random.randint(0, STATUSES_MAX)
    report = control_pb2.HeartbeatRequest(
        node_id=HOSTILE,
        complete=random.random() < 0.5,
        removed_workload_ids=random.choices(names, k=random.randint(0, 5)),
    )
    for _ in range(count):
        report.workload_statuses.add(
            workload_id=random.choice(names),
            state=random.choice(STATES),
            epoch=random.choice(EPOCHS),
            revision_id=random.choice(("v0", "v1", "v2", *TEXTS)),
            message=random.choice(TEXTS),
            failure_reason=control_pb2.FailureReason.Name(random.randrange(9)),
        )
    return report
