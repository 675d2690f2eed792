"""Unwanted peers: the clone of a node's disk, a node that sends arbitrary reports, and falsified heartbeats.

A clone has the node's id, its journal, and a runtime of its own: each start is a second copy without
a record. A hostile node has a valid identity and no capacity; its reports about workloads of other nodes must
change nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import grpc

from persys.sim.engine.process import SimProcess
from persys.sim.network.network import Network
from persys.wire.gen.control.v1 import control_pb2

STATES = ("Running", "Failed", "Pending", "Unknown", "", "x" * 300)
TEXTS = ("", "ok", "x" * 5_000, "\x00", "\x1b[2J", "workload not found", "../../nodes/n1")
EPOCHS = (0, -1, 2**53 + 1, 2**63 - 1)  # never assigned
LARGER_THAN_A_RECORD = "y" * 1_200_000
NUMBERS = (0, -1, 2**31 - 1, -(2**31))
STATUS_SHARE = 0.3
OVERSIZED_SHARE = 0.7
LARGE_SHARE = 0.25
OVERSIZED = "z" * 10_000

HOSTILE = "x1"
REPORT_SECONDS = 0.7
LIST_SECONDS = 8.0
CALL_SECONDS = 5.0
STATUSES_MAX = 40
LISTED = (0, 150, 300)
HOSTILE_EPOCHS = (1, 2, 9_999, 10_001, 2**31, 2**53, *EPOCHS)
HOSTILE_STATES = ("Stopped", *STATES)


def falsify(report: control_pb2.HeartbeatRequest, random: Random) -> None:
    """Mix false content into a heartbeat. No copy is reported as removed: a node is trusted for that."""
    for status in report.workload_statuses:
        if random.random() < STATUS_SHARE:
            _falsify_status(status, random)
        elif random.random() < OVERSIZED_SHARE:
            _oversize_status(status, random)
    for _ in range(random.randint(0, 3)):
        made_up = report.workload_statuses.add(workload_id=f"made-up-{random.randrange(50)}")
        _falsify_status(made_up, random)
    report.internal_errors.add(
        component=_text(random), where=_text(random), key=_text(random), text=_text(random)
    )
    report.usage.cpu_used_millicores = random.choice(NUMBERS)
    report.usage.memory_used_mb = random.choice(NUMBERS)
    report.unavailable_types.append(random.choice(TEXTS))


def _falsify_status(status: control_pb2.WorkloadStatus, random: Random) -> None:
    status.state = random.choice(STATES)
    status.epoch = random.choice(EPOCHS)
    status.revision_id = random.choice((status.revision_id, _text(random)))
    status.message = _text(random)
    reason = random.choice(control_pb2.FailureReason.keys())
    status.MergeFrom(control_pb2.WorkloadStatus(failure_reason=reason))
    status.reason.code = _text(random)
    status.reason.message = _text(random)
    status.reason.retryable = random.random() < 0.5
    status.metadata[_text(random)[:1_000]] = _text(random)


def _oversize_status(status: control_pb2.WorkloadStatus, random: Random) -> None:
    """The state, the epoch and the revision are true, so the scheduler accepts and stores the rest."""
    status.message = OVERSIZED
    for number in range(random.choice((1, 100))):
        status.metadata[f"{number}-{OVERSIZED}"[: random.choice((10, 1_000))]] = OVERSIZED


def _text(random: Random) -> str:
    if random.random() < LARGE_SHARE / 10:
        return LARGER_THAN_A_RECORD
    return random.choice(TEXTS)


class Hostile:
    """Some report the same hundreds of unknown copies repeatedly, others different ones each time."""

    def __init__(
        self,
        network: Network,
        process: SimProcess,
        random: Random,
        *,
        schedulers: Sequence[str],
        workload_ids: Sequence[str],
        joins: Callable[[], None],
    ) -> None:
        """`joins` is called before each registration."""
        self._network = network
        self._process = process
        self._random = random
        self._schedulers = schedulers
        self._workload_ids = workload_ids
        self._joins = joins
        self._listed = [f"made-up-{number}" for number in range(random.choice(LISTED))]

    async def run(self) -> None:
        """Register and send heartbeats with arbitrary content until the process ends."""
        time = asyncio.get_running_loop().time
        due = time()
        while self._process.alive:
            with suppress(grpc.aio.AioRpcError):
                if self._random.random() < 0.2:
                    self._joins()
                    await self._call("RegisterNode", _registration(self._random))
                if self._listed and time() >= due:
                    due = time() + LIST_SECONDS
                    await self._call("Heartbeat", self._list())
                await self._call("Heartbeat", self._report())
            await asyncio.sleep(self._random.uniform(0, 2 * REPORT_SECONDS))

    async def _call(self, method: str, request: Any) -> None:
        target = self._random.choice(self._schedulers)
        await self._network.call(self._process, target, method, request, timeout=CALL_SECONDS)

    def _list(self) -> control_pb2.HeartbeatRequest:
        report = control_pb2.HeartbeatRequest(node_id=HOSTILE, complete=True)
        for name in self._listed:
            report.workload_statuses.add(workload_id=name, state="Running", epoch=1)
        return report

    def _report(self) -> control_pb2.HeartbeatRequest:
        random = self._random
        names = [*self._workload_ids, *(f"made-up-{random.randrange(500)}" for _ in range(10))]
        report = control_pb2.HeartbeatRequest(
            node_id=HOSTILE,
            complete=not self._listed and random.random() < 0.5,
            removed_workload_ids=random.choices(names, k=random.randint(0, 5)),
        )
        for _ in range(random.randint(0, STATUSES_MAX)):
            report.workload_statuses.add(
                workload_id=random.choice(names),
                state=random.choice(HOSTILE_STATES),
                epoch=random.choice(HOSTILE_EPOCHS),
                revision_id=random.choice(("v0", "v1", "v2", *TEXTS)),
                message=random.choice(TEXTS),
                failure_reason=control_pb2.FailureReason.Name(random.randrange(9)),
            )
        return report


def _registration(random: Random) -> control_pb2.RegisterNodeRequest:
    return control_pb2.RegisterNodeRequest(
        node_id=HOSTILE,
        grpc_endpoint=HOSTILE,
        capabilities=control_pb2.NodeCapabilities(
            cpu_total_millicores=1, memory_total_mb=1, supported_workload_types=["container"]
        ),
        features=["push-status", *(random.choice(TEXTS) for _ in range(3))],
        labels={"zone": random.choice(TEXTS)},
        cluster_uid=random.choice(TEXTS),
        workload_count=random.choice((0, 1, 2**31 - 1)),
    )
