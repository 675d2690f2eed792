"""The remote cluster as the runtime of an agent.

The remote cluster pulls, places, restarts and checks the workloads. This runtime applies orders there and
reports what it observes. It never concludes that a workload is absent from a cluster that does not respond.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path

from persys.agent.ports import PullWatch
from persys.core.agent.admission import NODE_FULL
from persys.core.agent.next_step import Artefact
from persys.core.placement.requirements import has_data
from persys.errors import DeniedError, NotFoundError, RefusedError
from persys.federation.events import RemoteEvents
from persys.federation.mapping import (
    Names,
    apply_request,
    artefact_of,
    has_revision,
    is_placed,
    is_waiting,
    refusal,
    secret_values,
)
from persys.federation.ports import Remote
from persys.model.ids import WorkloadId
from persys.model.node import VolumeView
from persys.model.status import Failure, FailureReason, Status
from persys.model.workload import Desired, Order
from persys.wire.gen.control.v1 import control_pb2 as pb

LOOK_SECONDS = 5.0  # in addition to events
LOG_TAIL_LINES = 20
LOG_TAIL_BYTES_MAX = 4096


class ClusterRuntime:
    """Implements agent.ports.Runtime."""

    def __init__(self, remote: Remote, names: Names, events: RemoteEvents) -> None:
        self._remote = remote
        self._names = names
        self._events = events

    async def inspect(self, order: Order) -> Artefact | None:
        view = await self._view(order)
        return artefact_of(view, order) if view is not None else None

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Nothing: the remote cluster pulls on the node that it chooses."""
        return None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        """Create or update it. A workload that does not fit is not applied."""
        request = apply_request(order, self._names)
        present = await self._view(order)
        try:
            if failure := await self._put_secrets(order, present):
                return failure
            plan = await self._remote.plan(request)
            if failure := refusal(plan, exists=present is not None):
                return failure
            failure = _apply_failure(await self._remote.apply(request))
        except DeniedError as err:
            return Failure(FailureReason.RUNTIME_ERROR, f"the remote cluster refuses it: {err}")
        except RefusedError as err:
            return Failure(FailureReason.INVALID_SPEC, str(err), retryable=False)
        if failure is not None or present is not None or order.desired is not Desired.RUNNING:
            return failure
        return await self._until_placed(order)

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        """Start a stopped workload, or retry a failed one."""
        view = await self._view(order)
        if view is None or not has_revision(view, order) or view.desired_state != "Running":
            return await self.create(order, {})
        if is_waiting(view):
            # A workload with data waits there for the node that has it.
            return None if has_data(order.spec) else await self._give_back(order, view)
        if view.status == Status.FAILED:
            await self._remote.retry(artefact.id)
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        request = pb.ApplyWorkloadRequest(workload_id=artefact.id, desired_state="Stopped")
        failure = _apply_failure(await self._remote.apply(request))
        if failure is None:
            await self._until(order, lambda view: view.status != Status.RUNNING)
        return failure

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        return await self._delete(order)

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        return None  # the remote cluster repairs what differs there

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        return None

    async def discard(self, order: Order) -> Failure | None:
        """Delete the secrets of the workload, also those of its earlier revisions."""
        prefix = self._names.secret_prefix(order.workload_id)
        try:
            for secret in await self._remote.secrets():
                if secret.name.startswith(prefix):
                    await self._delete_secret(secret.name)
        except RefusedError as err:
            return Failure(FailureReason.RUNTIME_ERROR, f"cannot delete its secrets: {err}")
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        request = pb.LogsRequest(workload_id=artefact.id, tail=LOG_TAIL_LINES)
        tail = b""
        async with aclosing(self._remote.logs(request)) as chunks:
            async for chunk in chunks:
                tail = (tail + chunk.data)[-LOG_TAIL_BYTES_MAX:]
        return tail.decode(errors="replace")

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        return self._events.subscribe()

    async def ping(self) -> None:
        await self._remote.ensure_normal()

    async def _until_placed(self, order: Order) -> Failure | None:
        """The remote cluster may have become full since the plan."""
        view = await self._until(order, lambda view: is_placed(view) or is_waiting(view))
        return await self._give_back(order, view) if view and is_waiting(view) else None

    async def _give_back(self, order: Order, view: pb.WorkloadView) -> Failure | None:
        """Delete a workload that the remote cluster cannot place: the home cluster places it elsewhere."""
        failure = await self._delete(order)
        return failure or Failure(
            FailureReason.INSUFFICIENT_RESOURCES, view.reason.message, code=NODE_FULL
        )

    async def _delete(self, order: Order) -> Failure | None:
        try:
            answer = await self._remote.delete(self._names.remote(order.workload_id))
        except NotFoundError:
            return None
        if not answer.success and await self._view(order) is not None:
            return Failure(FailureReason.RUNTIME_ERROR, answer.error_message)
        await self._until(order, lambda _view: False)
        return None

    async def _put_secrets(self, order: Order, present: pb.WorkloadView | None) -> Failure | None:
        """Store the secrets of a new revision, and those that are missing."""
        values = secret_values(order, self._names)
        if not values:
            return None
        stored = set[str]()
        if present is not None and has_revision(present, order):
            stored = {secret.name for secret in await self._remote.secrets()}
        for name in values.keys() - stored:
            answer = await self._remote.put_secret(name, values[name])
            if not answer.accepted:
                text = f"the remote cluster refuses a secret: {answer.reason}"
                return Failure(FailureReason.RUNTIME_ERROR, text)
        return None

    async def _delete_secret(self, name: str) -> None:
        with suppress(NotFoundError):
            await self._remote.delete_secret(name)

    async def _view(self, order: Order) -> pb.WorkloadView | None:
        return await self._remote.workload(self._names.remote(order.workload_id))

    async def _until(
        self, order: Order, is_done: Callable[[pb.WorkloadView], bool]
    ) -> pb.WorkloadView | None:
        """Wait until the workload is in a state. None: it is gone. The caller has a deadline."""
        while True:
            with self._events.watch(order.workload_id) as changed:
                view = await self._view(order)
                if view is None or is_done(view):
                    return view
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await changed.wait()


class RemoteVolumes:
    """Implements agent.ports.Volumes: the remote cluster manages the volumes of its workloads."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.drivers = frozenset({"local"})

    async def check(self, order: Order) -> None:
        self._names.check(order.workload_id)

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        """Only the remote cluster knows the path; nothing here uses it."""
        return Path(name)

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        return Path(name)

    async def prepare(self, order: Order) -> Failure | None:
        return None

    async def release(self, workload_id: WorkloadId) -> None:
        return None

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        return None

    async def inventory(self) -> list[VolumeView]:
        return []

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        raise NotFoundError("volume", f"{name} of {workload_id}")


def _apply_failure(answer: pb.ApplyWorkloadResponse) -> Failure | None:
    if answer.success:
        return None
    if answer.failure_reason == pb.INVALID_SPEC:
        return Failure(FailureReason.INVALID_SPEC, answer.error_message, retryable=False)
    return Failure(FailureReason.RUNTIME_ERROR, answer.error_message)
