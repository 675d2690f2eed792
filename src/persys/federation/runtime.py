"""The remote cluster as the runtime of an agent.

The remote cluster pulls, places, restarts and checks the workloads. This runtime applies orders there and
reports what it observes. It never concludes that a workload is absent from a cluster that does not respond.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path

from persys.agent.journal.records import Image
from persys.agent.ports import PullWatch
from persys.core.agent.admission import NODE_FULL
from persys.core.agent.garbage import ImageUse, Item, Kind
from persys.core.agent.progress import Artefact
from persys.core.placement.requirements import has_data
from persys.errors import DeniedError, NotFoundError, RefusedError, RuntimeUnavailableError
from persys.federation.events import RemoteEvents
from persys.federation.mapping import (
    HOME_CLUSTER,
    Names,
    apply_request,
    artefact_of,
    check_order,
    has_goal,
    has_revision,
    is_placed,
    is_waiting,
    keeping_data,
    other_owner,
    plan_request,
    refusal,
    secret_values,
)
from persys.federation.metrics import FederationMetrics
from persys.federation.ports import Remote
from persys.model.ids import WorkloadId
from persys.model.node import VolumeView
from persys.model.status import Failure, FailureReason, Status
from persys.model.workload import Desired, Order
from persys.wire.gen.control.v1 import control_pb2 as pb

LOOK_SECONDS = 5.0  # in addition to events
_MAY_RUN = (Status.RUNNING, Status.PENDING)


class ClusterRuntime:
    """Implements agent.ports.Runtime."""

    def __init__(
        self,
        remote: Remote,
        names: Names,
        events: RemoteEvents,
        metrics: FederationMetrics,
    ) -> None:
        self._remote = remote
        self._names = names
        self._events = events
        self._metrics = metrics

    async def inspect(self, order: Order) -> Artefact | None:
        view = await self._view(order)
        return artefact_of(view, order) if view is not None else None

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Nothing: the remote cluster pulls on the node that it chooses."""
        return None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        """Create or update it. An update that does not fit is not applied."""
        request = apply_request(order, self._names)
        present = await self._any_view(order)
        if present is not None and (owner := other_owner(present, self._names)):
            return Failure(
                FailureReason.RUNTIME_ERROR,
                f"{present.workload_id} of node {owner} still exists in the remote cluster",
            )
        try:
            if failure := await self._put_secrets(order, present):
                return failure
            if present is not None and (failure := await self._plan(request, exists=True)):
                return failure
            failure = _apply_failure(await self._remote.apply(request))
        except RefusedError as err:
            return _refused(err)
        if failure is not None or present is not None or order.desired is not Desired.RUNNING:
            return failure
        return await self._until_placed(order)

    async def refusal(self, order: Order) -> Failure | None:
        """Why the remote cluster would not run a new workload now. Asked before the order is accepted."""
        if order.desired is not Desired.RUNNING:
            return None
        try:
            failure = await self._plan(plan_request(order, self._names), exists=False)
        except RuntimeUnavailableError:
            return None  # nothing is known: the order is carried out when the cluster responds
        except RefusedError as err:
            failure = _refused(err)
        if failure is not None:
            self._metrics.refused(failure)
        return failure

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        """Start a stopped workload, or retry a failed one."""
        view = await self._view(order)
        if view is None or not has_goal(view, order):
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
            await self._until(order, lambda view: view.status not in _MAY_RUN)
        return failure

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        """A copy with data is stopped first.

        The remote cluster forgets a deleted workload of a lost node, although the copy may still run there.
        """
        failure = await self._stop_certainly(order) if has_data(order.spec) else None
        if failure is None and order.keeps_data and has_data(order.spec):
            failure = await self._keep_data(order)
        return failure or await self._delete(order)

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        return None  # the remote cluster repairs what differs there

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        return None

    async def discard(self, order: Order) -> Failure | None:
        """Delete the secrets of the workload, also those of its earlier revisions."""
        try:
            await delete_secrets(self._remote, self._names, order.workload_id)
        except RefusedError as err:
            return Failure(FailureReason.RUNTIME_ERROR, f"cannot delete its secrets: {err}")
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        """Nothing: the remote cluster reports it with the state."""
        return ""

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        return self._events.subscribe()

    async def ping(self) -> None:
        try:
            await self._remote.ensure_normal()
        except RuntimeUnavailableError:
            self._events.reopen()  # a broken connection may keep a stream open without events
            raise

    async def _until_placed(self, order: Order) -> Failure | None:
        """The remote cluster may have become full since the plan."""
        view = await self._until(order, lambda view: is_placed(view) or is_waiting(view))
        return await self._give_back(order, view) if view and is_waiting(view) else None

    async def _give_back(self, order: Order, view: pb.WorkloadView) -> Failure | None:
        """Delete a workload that the remote cluster cannot place: the home cluster places it elsewhere."""
        if failure := await self._delete(order):
            return failure
        full = Failure(FailureReason.INSUFFICIENT_RESOURCES, view.reason.message, code=NODE_FULL)
        self._metrics.refused(full)
        return full

    async def _plan(self, request: pb.ApplyWorkloadRequest, *, exists: bool) -> Failure | None:
        return refusal(await self._remote.plan(request), exists=exists)

    async def _stop_certainly(self, order: Order) -> Failure | None:
        """Wait until the remote cluster confirms that no copy runs."""
        view = await self._view(order)
        if view is None or not is_placed(view) or view.status == Status.DELETING:
            return None
        if view.desired_state.lower() != Desired.STOPPED:
            request = pb.ApplyWorkloadRequest(workload_id=view.workload_id, desired_state="Stopped")
            if failure := _apply_failure(await self._remote.apply(request)):
                return failure
        await self._until(order, lambda view: view.status == Status.STOPPED)
        return None

    async def _keep_data(self, order: Order) -> Failure | None:
        """Let the node there know, before the deletion, that the volumes of a stopped workload stay."""
        answer = await self._remote.apply(apply_request(keeping_data(order), self._names))
        if failure := _apply_failure(answer):
            return failure
        await self._until(
            order,
            lambda view: (
                (view.revision_id, view.status) == (answer.revision_id, Status.STOPPED)
                and view.admitted_on_node
            ),
        )
        return None

    async def _delete(self, order: Order) -> Failure | None:
        if await self._view(order) is None:
            return None
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

    async def _view(self, order: Order) -> pb.WorkloadView | None:
        """None: the remote cluster has no copy of this node."""
        view = await self._any_view(order)
        return view if view is not None and not other_owner(view, self._names) else None

    async def _any_view(self, order: Order) -> pb.WorkloadView | None:
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
        check_order(order, self._names)

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


class RemoteGarbage:
    """Implements agent.ports.GarbageSource: copies that this cluster has deleted, and their secrets.

    A remote cluster that was restored from an older snapshot has them again. A copy that no order names and
    that was never deleted here may belong to a lost journal: what has data is kept.
    """

    def __init__(self, remote: Remote, names: Names, known: Callable[[], Container[WorkloadId]]):
        """`known`: the workloads of this node."""
        self._remote = remote
        self._names = names
        self._known = known

    async def inventory(self) -> list[Item]:
        """Only copies that this node does not know: a list does not contain specs."""
        await self._remote.ensure_normal()
        unknown = {
            view.workload_id: home_id
            for view in await self._remote.workloads()
            if (home_id := self._names.local(view.workload_id)) is not None
            and home_id not in self._known()
        }
        copies = [
            Item(Kind.WORKLOAD, remote_id, remote_id, home_id, running=_has_data(view))
            for remote_id, home_id in unknown.items()
            if (view := await self._remote.workload(remote_id)) is not None
            and view.spec.metadata.get(HOME_CLUSTER) == self._names.home
            and not other_owner(view, self._names)
        ]
        return [*copies, *await self._secrets(frozenset(unknown.values()))]

    async def _secrets(self, copied: Container[WorkloadId]) -> list[Item]:
        """Secrets of this node without a workload: a restored cluster may have deleted only the workload."""
        found: list[Item] = []
        try:
            secrets = await self._remote.secrets()
        except RefusedError:
            return found  # a token without that permission has stored none
        for name in (secret.name for secret in secrets):
            home_id = self._names.local(name.rpartition(".")[0])
            if home_id is None or home_id in self._known() or home_id in copied:
                continue
            if name.startswith(self._names.secret_prefix(home_id)):
                found.append(Item(Kind.SECRET, name, name, home_id))
        return found

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        return []

    async def remove(self, item: Item) -> str:
        if item.kind is Kind.SECRET:
            return await self._remove_secret(item.id)
        try:
            answer = await self._remote.delete(item.id)
            if answer.success:
                await delete_secrets(self._remote, self._names, item.workload_id)
        except NotFoundError:
            return ""
        except RefusedError as err:
            return str(err)
        return "" if answer.success else answer.error_message

    async def _remove_secret(self, name: str) -> str:
        try:
            await self._remote.delete_secret(name)
        except NotFoundError:
            return ""
        except RefusedError as err:
            return str(err)
        return ""


def _has_data(view: pb.WorkloadView) -> bool:
    """Only a container without volumes certainly has none."""
    container = view.spec.container
    return not container.image or bool(container.managed_volumes or container.volumes)


async def delete_secrets(remote: Remote, names: Names, workload_id: WorkloadId) -> None:
    """Raises RefusedError while a workload uses one of them."""
    prefix = names.secret_prefix(workload_id)
    for secret in await remote.secrets():
        if secret.name.startswith(prefix):
            with suppress(NotFoundError):
                await remote.delete_secret(secret.name)


def _apply_failure(answer: pb.ApplyWorkloadResponse) -> Failure | None:
    if answer.success:
        return None
    if answer.failure_reason == pb.INVALID_SPEC:
        return Failure(FailureReason.INVALID_SPEC, answer.error_message, retryable=False)
    return Failure(FailureReason.RUNTIME_ERROR, answer.error_message)


def _refused(err: RefusedError) -> Failure:
    if isinstance(err, DeniedError):
        return Failure(FailureReason.RUNTIME_ERROR, f"the remote cluster refuses it: {err}")
    return Failure(FailureReason.INVALID_SPEC, str(err), retryable=False)
