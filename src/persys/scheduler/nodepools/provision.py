"""Calls to the providers of node pools: list, create, destroy. Each pool has its own provider.

A machine gets a join token that is valid once and for 15 minutes. The token is requested after the machine is
stored and before it is created: without a token nothing is created. The machines of the provider `libvirt`
are VM workloads of this cluster.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import structlog

from persys.core.intent import apply as intent_apply
from persys.core.intent.apply import ApplyRequest
from persys.core.nodepools.outcome import CreateRefused
from persys.core.nodepools.steps import PoolInstance
from persys.errors import (
    InvalidError,
    NotFoundError,
    PersysError,
    ProviderRefusedError,
    ProviderThrottledError,
    ProviderUnavailableError,
    RefusedError,
)
from persys.infra.clock import Clock
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import DISK, Node, VolumeState
from persys.model.nodepool import (
    TAG_CLUSTER,
    TAG_CLUSTER_UID,
    TAG_MACHINE,
    TAG_POOL,
    TAG_SIZE,
    Machine,
    NodePool,
)
from persys.model.placement import Constraint, Operator, Rules
from persys.model.secret import StoredReference
from persys.model.spec import VMSpec
from persys.model.status import Status
from persys.model.workload import Desired
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    MachineWorkload,
    Provider,
)
from persys.providers.user_data import Boot, user_data
from persys.scheduler.dispatch.agent_client import AgentClient
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.stored.revision import revision_of

log = structlog.get_logger()

TOKEN_LIFETIME = timedelta(minutes=15)
LIST_SECONDS = 150.0
CALL_SECONDS = 330.0
_CREDENTIALS_MAX = 64
_ON_NODE = (DISK, "local")  # drivers whose volumes are lost with the machine

# Opens the provider of a pool with its credentials. Raises RefusedError.
OpenProvider = Callable[[NodePool, Mapping[str, str]], Provider]
# A join token for a node, valid once and for this long.
IssueToken = Callable[[NodeId, timedelta], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """How a new machine finds its cluster."""

    cluster_id: str
    uid: Callable[[], str]
    schedulers: Callable[[], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Opened:
    key: tuple[object, ...]
    provider: Provider


class Provisioner:
    def __init__(
        self,
        address: ClusterAddress,
        *,
        open_provider: OpenProvider,
        open_secret: Callable[[StoredReference], bytes],
        issue_token: IssueToken | None,
    ) -> None:
        """`issue_token` None: the cluster has no TLS, or no persys-ca that issues tokens."""
        self._address = address
        self._open_provider = open_provider
        self._open_secret = open_secret
        self._issue_token = issue_token
        self._opened: dict[str, _Opened] = {}
        self._first_seen: dict[str, datetime] = {}

    def check(self, pool: NodePool) -> None:
        """Raises RefusedError if this scheduler cannot use the provider with these options."""
        self._open_provider(pool, self._credentials(pool))

    async def instances(self, pool: NodePool, now: datetime) -> list[PoolInstance]:
        """Raises PersysError if the provider does not answer: nothing is known then."""
        provider = await self._provider(pool)
        async with _deadline(LIST_SECONDS, "the list of instances"):
            listed = await provider.instances(self._tags(pool))
        return [self._seen(instance, now) for instance in listed]

    async def create(self, pool: NodePool, machine: Machine) -> str | CreateRefused:
        """The provider's id, or why nothing was created. Raises UnavailableError: the machine may exist."""
        try:
            token = await self._token(machine)
            request = self._request(pool, machine, token)
            provider = await self._provider(pool)
        except PersysError as err:
            return CreateRefused(str(err))
        try:
            async with _deadline(CALL_SECONDS, "the create call"):
                instance = await provider.create(request)
        except ProviderThrottledError as err:
            return CreateRefused(str(err), err.retry_after)
        except (ProviderRefusedError, InvalidError) as err:
            return CreateRefused(str(err))
        return instance.provider_id

    async def destroy(self, pool: NodePool, provider_id: str) -> None:
        """Raises PersysError; repeating it is safe."""
        provider = await self._provider(pool)
        async with _deadline(CALL_SECONDS, "the destroy call"):
            await provider.destroy(provider_id)

    async def close(self, pool_id: str) -> None:
        opened = self._opened.pop(pool_id, None)
        if opened is not None:
            await opened.provider.close()

    async def close_all(self) -> None:
        for pool_id in list(self._opened):
            await self.close(pool_id)

    async def _provider(self, pool: NodePool) -> Provider:
        """A new provider after each change of the pool or of its credentials."""
        credentials = self._credentials(pool)
        key = (
            pool.provider,
            pool.region,
            pool.image,
            pool.sizes,
            tuple(sorted(pool.options.items())),
            tuple(sorted(credentials.items())),
        )
        opened = self._opened.get(pool.pool_id)
        if opened is not None and opened.key == key:
            return opened.provider
        await self.close(pool.pool_id)
        provider = self._open_provider(pool, credentials)
        self._opened[pool.pool_id] = _Opened(key, provider)
        return provider

    def _credentials(self, pool: NodePool) -> dict[str, str]:
        if not pool.credentials:
            return {}
        return parse_credentials(self._open_secret(StoredReference(pool.credentials)))

    async def _token(self, machine: Machine) -> str:
        if self._issue_token is None:
            return ""
        return await self._issue_token(machine.node_id, TOKEN_LIFETIME)

    def _tags(self, pool: NodePool) -> dict[str, str]:
        return {
            TAG_CLUSTER: self._address.cluster_id,
            TAG_CLUSTER_UID: self._address.uid(),
            TAG_POOL: pool.pool_id,
        }

    def _request(self, pool: NodePool, machine: Machine, token: str) -> MachineRequest:
        size = pool.size(machine.size)
        if size is None:
            raise RefusedError(f"node pool {pool.pool_id} has no size {machine.size}")
        cores = size.resources.cpu_millicores / 1000
        boot = Boot(
            node_id=machine.name,
            cluster_id=self._address.cluster_id,
            schedulers=self._address.schedulers(),
            join_token=token,
            idle_after=pool.idle_after,
            keeps_idle=pool.min_machines > 0,
            labels=pool.labels,
            tier=pool.tier,
            core_hour_price=size.hour_price / cores,
            software=pool.software,
            packages=tuple(pool.options.get("packages", "").split()),
        )
        return MachineRequest(
            name=machine.name,
            tags={**self._tags(pool), TAG_MACHINE: machine.name, TAG_SIZE: machine.size},
            size=machine.size,
            image=pool.image,
            region=pool.region,
            user_data=user_data(boot),
            options=pool.options,
        )

    def _seen(self, instance: Instance, now: datetime) -> PoolInstance:
        first = self._first_seen.setdefault(instance.provider_id, now)
        return PoolInstance(
            instance.provider_id,
            instance.tags.get(TAG_MACHINE) or instance.name,
            instance.tags.get(TAG_SIZE, ""),
            instance.created_at or first,
            stopped=instance.state is InstanceState.STOPPED,
        )


def volume_counter(agents: AgentClient) -> Callable[[Node], Awaitable[int]]:
    """Counts the volumes on a node that stay there after their workloads were deleted."""

    async def count(node: Node) -> int:
        request = agent_pb2.ListVolumesRequest()
        try:
            answer = await agents.call(node.id, node.endpoint, "ListVolumes", request)
        except RefusedError:
            return 0  # this agent has no managed volumes
        return sum(
            view.state == VolumeState.RETAINED and view.driver in _ON_NODE
            for view in answer.volumes
        )

    return count


def parse_credentials(value: bytes) -> dict[str, str]:
    """A JSON object of texts. The error does not contain the value."""
    try:
        found = msgspec.json.decode(value, type=dict[str, str])
    except msgspec.MsgspecError as err:
        raise RefusedError(
            "invalid credentials of a node pool: expected a secret with a JSON object of texts"
        ) from err
    if len(found) > _CREDENTIALS_MAX:
        raise RefusedError(f"{len(found)} credentials: expected at most {_CREDENTIALS_MAX}")
    return found


class MachineVms:
    """VM workloads as machines, for the provider `libvirt`. Implements its WorkloadApi."""

    def __init__(self, cluster: ClusterState, reconciler: Reconciler, clock: Clock) -> None:
        self._cluster = cluster
        self._reconciler = reconciler
        self._clock = clock

    async def machines(self, metadata: Mapping[str, str]) -> list[MachineWorkload]:
        return [
            found
            for entry in self._cluster.workloads.values()
            if metadata.items() <= entry.workload.metadata.items()
            and (found := _machine(entry)) is not None
        ]

    async def apply(self, machine: MachineWorkload) -> None:
        constraints = tuple(
            Constraint(key, Operator.EQUALS, (value,))
            for key, value in sorted(machine.required_labels.items())
        )
        revision = revision_of(machine.spec, machine.resources, machine.metadata)
        request = ApplyRequest(
            machine.id,
            Desired.RUNNING,
            machine.spec,
            machine.resources,
            machine.metadata,
            revision,
            False,
            Rules(constraints=constraints),
            0,
        )
        await self._reconciler.submit(
            machine.id, lambda old: intent_apply.apply(old, request, now=self._clock.now())
        )

    async def delete(self, workload_id: WorkloadId) -> None:
        if workload_id not in self._cluster.workloads:
            return
        try:
            await self._reconciler.submit(
                workload_id,
                lambda old: intent_apply.change_desired(
                    old, workload_id, Desired.DELETED, now=self._clock.now()
                ),
            )
        except NotFoundError:
            return


def _machine(entry: WorkloadState) -> MachineWorkload | None:
    workload, status = entry.workload, entry.workload_status
    if not isinstance(workload.spec, VMSpec):
        return None
    return MachineWorkload(
        workload.id,
        workload.spec,
        workload.metadata,
        workload.resources,
        status=status.status if status is not None else Status.PENDING,
        created_at=workload.created_at,
    )


@asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as err:
        raise ProviderUnavailableError(f"{what} was not answered in time") from err
