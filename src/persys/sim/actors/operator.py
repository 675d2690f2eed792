"""The operator during a loss of the store: saves snapshots, watches the mode, and starts a recovery."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc

from persys.model.cluster import Mode
from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Workload
from persys.sim.checks.store_loss import StoreLoss
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.sim.network.network import AbortedError, Context
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.stored import snapshot
from persys.wire.stored.records import decode

LOOK_SECONDS = 5.0
RECOVERY_SECONDS = 60.0
REBUILD, ACCEPT, RESTORE = "rebuild", "accept", "restore"

Call = Callable[..., Awaitable[Any]]


class Operator:
    def __init__(
        self,
        losses: StoreLoss,
        trace: Trace,
        *,
        call: Call,
        leader: Callable[[], SimProcess | None],
    ) -> None:
        """`call` calls a scheduler; a snapshot is restored on the leader."""
        self._losses = losses
        self._trace = trace
        self._call = call
        self._leader = leader
        self._chunks: list[bytes] = []
        self.recovery = REBUILD
        self.patience_seconds = 0.0

    async def save(self) -> None:
        answers: list[control_pb2.SnapshotChunk] | None = await self._call(
            "SaveSnapshot", control_pb2.SaveSnapshotRequest(), all_messages=True
        )
        if not answers or self._losses.open:
            return
        self._chunks = [answer.data for answer in answers]
        contents = snapshot.read(self._chunks)
        # A workload that is being deleted may be gone right after the snapshot is restored.
        self._losses.snapshot = frozenset(
            WorkloadId(key.removeprefix(keys.WORKLOADS))
            for key, value in contents.records
            if key.startswith(keys.WORKLOADS)
            and decode(value, Workload).desired is not Desired.DELETED
        )

    async def run(self) -> None:
        """Recovery mode may start long after the loss: a restarted scheduler detects it from agents."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            mode = await self._mode() if self._losses.ever else None
            if mode == Mode.RECOVERY:
                await asyncio.sleep(self.patience_seconds)
                await self._recover()
            elif mode == Mode.NORMAL and self._losses.open:
                self._check_normal_mode()

    async def _mode(self) -> str | None:
        view = await self._call("GetMode", control_pb2.GetModeRequest())
        return view.mode if view is not None and view.role == "leader" else None

    def _check_normal_mode(self) -> None:
        """The recovery response was lost, or the leader restarted and no agent has reported yet."""
        leader = self._leader()
        if (
            self._losses.recovery_requested
            or leader is None
            or leader.title not in self._losses.with_records
        ):
            self._losses.close()
            return
        lost_for = self._losses.time() - self._losses.lost_at
        if lost_for > RECOVERY_SECONDS:
            text = f"{leader.title} has been in normal mode for {lost_for:.0f}s, on an empty store"
            self._losses.fail("11 recovery", text)

    async def _recover(self) -> None:
        self._losses.reopen()
        self._losses.recovery_requested = True
        recovery = self.recovery if self._chunks or self.recovery != RESTORE else REBUILD
        self._trace.add("user", f"recovers: {recovery}")
        match recovery:
            case "restore":
                await self._restore()
            case "accept":
                request = control_pb2.AcceptEmptyRequest()
                await self._call("AcceptEmpty", request, seconds=RECOVERY_SECONDS)
            case _:
                rebuild = control_pb2.RebuildFromAgentsRequest()
                await self._call("RebuildFromAgents", rebuild, seconds=RECOVERY_SECONDS)

    async def _restore(self) -> None:
        """Call the handler directly: the simulated network has no request streams."""
        leader = self._leader()
        handler = leader.serves.get("RestoreSnapshot") if leader is not None else None
        if leader is None or handler is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def restore() -> None:
            with suppress(AbortedError, grpc.aio.AioRpcError):
                answer = await handler(self._snapshot_chunks(), Context())
                self._losses.recovered(leader, "RestoreSnapshot", answer)
            if not done.done():
                done.set_result(None)

        leader.spawn(restore())
        with suppress(TimeoutError):
            async with asyncio.timeout(RECOVERY_SECONDS):
                await done

    async def _snapshot_chunks(self) -> AsyncIterator[control_pb2.SnapshotChunk]:
        for chunk in self._chunks:
            yield control_pb2.SnapshotChunk(data=chunk)
