"""Users and operators: they send requests, and retry a few times without a response."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import grpc

from persys.infra.aio.keyed_queue import KeyedQueue
from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Desired
from persys.sim.actors.operator import Operator
from persys.sim.checks.acknowledged import UserRequest
from persys.sim.checks.safety import Invariants
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.network.network import Network
from persys.sim.scenario.plan import PlannedEvent
from persys.sim.scenario.specs import DATABASE, revision_of, spec_of
from persys.wire.gen.control.v1 import control_pb2

ATTEMPTS_MAX = 3
DEADLINE_SECONDS = 10.0
LOOK_SECONDS = 7.0
CONFIRM_SECONDS = 10.0
REMOVE_AGAIN_SECONDS = 12.0
OPERATOR_CALLS = {"cordon": "CordonNode", "uncordon": "UncordonNode"}


class Users:
    def __init__(
        self,
        seed: int,
        process: SimProcess,
        network: Network,
        invariants: Invariants,
        trace: Trace,
        *,
        schedulers: tuple[str, ...],
        leader: Callable[[], SimProcess | None],
        offloads: bool = False,
    ) -> None:
        """`offloads`: some of their workloads may use a federated node."""
        self._seed = seed
        self._offloads = offloads
        self._process = process
        self._network = network
        self._invariants = invariants
        self._trace = trace
        self._schedulers = schedulers
        self._random = rng(seed, "users")
        self._queues: KeyedQueue[str] | None = None
        self.operator = Operator(invariants.losses, trace, call=self._call, leader=leader)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._queues = KeyedQueue(group, contain=nullcontext)
            group.create_task(self.operator.run())
            if self._offloads:
                group.create_task(self._put_secret())
            while True:  # periodic reads
                await asyncio.sleep(LOOK_SECONDS)
                await self._call("ListNodes", control_pb2.ListNodesRequest())
                if len(self._schedulers) > 1:
                    await self._call("ListWorkloads", control_pb2.ListWorkloadsRequest())

    async def _put_secret(self) -> None:
        """The secret that some workloads use."""
        request = control_pb2.PutSecretRequest(name=DATABASE, value=b"secret")
        while True:
            answer = await self._call("PutSecret", request)
            if answer is not None and answer.accepted:
                return
            await asyncio.sleep(1)

    def do(self, event: PlannedEvent) -> None:
        assert self._queues is not None
        self._queues.submit(event.target, lambda: self._do(event))

    async def _do(self, event: PlannedEvent) -> None:
        name = event.target
        match event.kind:
            case "apply":
                variant = int(event.amount)
                revision = revision_of(variant)
                apply = control_pb2.ApplyWorkloadRequest(
                    workload_id=name,
                    spec=spec_of(self._seed, name, variant, offloads=self._offloads),
                    revision_id=revision,
                )
                await self._request_with_retries("ApplyWorkload", apply, UserRequest(revision))
            case "stop" | "start":
                desired = Desired.STOPPED if event.kind == "stop" else Desired.RUNNING
                want = control_pb2.ApplyWorkloadRequest(
                    workload_id=name, desired_state=desired.title()
                )
                await self._request_with_retries(
                    "ApplyWorkload", want, UserRequest(desired=desired)
                )
            case "delete":
                delete = control_pb2.DeleteWorkloadRequest(workload_id=name)
                await self._request_with_retries(
                    "DeleteWorkload", delete, UserRequest(desired=Desired.DELETED)
                )
            case "retry":
                self._invariants.requested(WorkloadId(name), UserRequest())
                await self._call(
                    "RetryWorkload", control_pb2.RetryWorkloadRequest(workload_id=name)
                )
            case "snapshot":
                await self.operator.save()
            case "remove":
                await self._remove(name)
            case "drain":
                self._invariants.removals.restricted_at[NodeId(name)] = (
                    asyncio.get_running_loop().time()
                )
                await self._call("DrainNode", control_pb2.DrainNodeRequest(node_id=name))
            case kind:
                if kind == "cordon":
                    self._invariants.removals.restricted_at[NodeId(name)] = (
                        asyncio.get_running_loop().time()
                    )
                await self._call(OPERATOR_CALLS[kind], control_pb2.NodeRequest(node_id=name))

    async def _remove(self, name: str) -> None:
        """Remove a node, with retries while it still has workloads."""
        for _ in range(ATTEMPTS_MAX):
            answer = await self._call("RemoveNode", control_pb2.NodeRequest(node_id=name))
            if answer is not None and answer.accepted:
                self._trace.add("user", f"accepted: RemoveNode {name}")
                return
            await asyncio.sleep(REMOVE_AGAIN_SECONDS)

    async def confirm_dead(self, name: str) -> None:
        """Confirm a destroyed machine as dead, with retries until the scheduler accepts it."""
        request = control_pb2.NodeRequest(node_id=name)
        while True:
            await asyncio.sleep(CONFIRM_SECONDS)
            answer = await self._call("ConfirmNodeDead", request)
            if answer is not None and answer.accepted:
                return

    async def _request_with_retries(self, method: str, request: Any, change: UserRequest) -> None:
        """Repeat a request until it is acknowledged or the attempts are used up."""
        workload_id = WorkloadId(request.workload_id)
        self._invariants.requested(workload_id, change)
        for _ in range(ATTEMPTS_MAX):
            answer = await self._call(method, request)
            if answer is not None and answer.success:
                self._trace.add("user", f"accepted: {method} {workload_id} {change.revision}")
                return
            await asyncio.sleep(1)

    async def _call(
        self,
        method: str,
        request: Any,
        *,
        seconds: float = DEADLINE_SECONDS,
        all_messages: bool = False,
    ) -> Any:
        """The first response message, or all with `all_messages`; None without a response."""
        time = asyncio.get_running_loop().time
        until = time() + seconds
        address = self._random.choice(self._schedulers)
        with suppress(grpc.aio.AioRpcError):
            answer = await self._network.call(
                self._process, address, method, request, timeout=seconds
            )
            return answer if all_messages else answer[0]
        if len(self._schedulers) > 1:
            # Another scheduler may still process the request: the next one must come after its deadline.
            await asyncio.sleep(max(0.0, until - time()))
        return None
