"""The capacity of the remote cluster, as the capacity of one node.

The node offers a share of what is free there, and what this cluster already uses. It registers again only
when the offer changes by more than a twentieth, so an idle federation writes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import replace

from persys.agent.journal.store import Journal
from persys.agent.node.host import CpuTime, Disk, Memory
from persys.errors import RefusedError, RuntimeUnavailableError
from persys.federation.mapping import requested
from persys.federation.ports import Remote
from persys.model import feature
from persys.model.node import Capabilities
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.model.workload import Desired
from persys.wire.gen.control.v1 import control_pb2 as pb

log = structlog.get_logger()

CHANGE_MIN = 0.05
REFRESH_SECONDS = 10.0
_READY = "Ready"


class Limits(Struct, frozen=True):
    """How much of the remote cluster may be used."""

    share: float = 0.9  # of what is free
    cpu_millicores_max: int = 0  # 0: no limit
    spend_per_hour_max: float = 0.0  # 0: no limit
    core_hour_price: float = 0.0

    def cores_max(self) -> float:
        """The lower of the limit of cores and the cores that the spend limit pays for."""
        limits = [self.cpu_millicores_max / 1000] if self.cpu_millicores_max else []
        if self.spend_per_hour_max and self.core_hour_price:
            limits.append(self.spend_per_hour_max / self.core_hour_price)
        return min(limits, default=float("inf"))


class Offer(Struct, frozen=True):
    total: Resources = Resources()
    largest: Resources = Resources()  # the most that fits on a single node of the remote cluster
    types: frozenset[WorkloadType] = frozenset()  # that at least one of its nodes supports
    labels: dict[str, str] = {}  # that all of its nodes have
    images: frozenset[str] = frozenset()  # VM images that at least one of its nodes has
    remote: str = ""  # id and address of the cluster

    def differs_from(self, other: "Offer") -> bool:
        """Whether it is worth a new registration."""
        if _facts(self) != _facts(other):
            return True
        return any(
            abs(mine - theirs) > CHANGE_MIN * max(mine, theirs)
            for mine, theirs in zip(_amounts(self), _amounts(other), strict=True)
        )

    def capabilities(self, found: Capabilities) -> Capabilities:
        """What the node registers. `found`: as of a machine."""
        images = {f"{feature.IMAGE}{name}" for name in self.images}
        return replace(
            found,
            types=self.types,
            # Another cluster may start a workload again.
            features=found.features - {feature.RUN_ONCE} | images,
            remote=self.remote,
            largest=self.largest,
            # The size of a local pool is measured rarely.
            pools=tuple(replace(pool, total_gb=self.total.disk_gb) for pool in found.pools),
        )


def _facts(offer: Offer) -> tuple[object, ...]:
    return offer.types, offer.labels, offer.images, offer.remote


def _amounts(offer: Offer) -> tuple[int, ...]:
    return tuple(
        amount
        for part in (offer.total, offer.largest)
        for amount in (part.cpu_millicores, part.memory_mb, part.disk_gb)
    )


def offer_of(nodes: Iterable[pb.NodeView], used: Resources, limits: Limits) -> Offer:
    """`used`: what this cluster uses there already."""
    usable = [node for node in nodes if _is_usable(node)]
    free = [_free(node) for node in usable]
    share = limits.share
    total = Resources(
        used.cpu_millicores + int(share * sum(one.cpu_millicores for one in free)),
        used.memory_mb + int(share * sum(one.memory_mb for one in free)),
        used.disk_gb + int(share * sum(one.disk_gb for one in free)),
    )
    cpu_most = limits.cores_max() * 1000
    if total.cpu_millicores > cpu_most:
        total = Resources(int(cpu_most), total.memory_mb, total.disk_gb)
    largest = Resources(
        max((one.cpu_millicores for one in free), default=0),
        max((one.memory_mb for one in free), default=0),
        max((one.disk_gb for one in free), default=0),
    )
    names = {name for node in usable for name in node.supported_workload_types}
    return Offer(
        total,
        largest,
        types=frozenset(kind for kind in WorkloadType if kind.value in names),
        labels=_shared_labels(usable),
    )


def _is_usable(node: pb.NodeView) -> bool:
    """What has arrived by federation is not offloaded again, so only machines count."""
    return node.status == _READY and not node.cordoned and not node.remote


def _shared_labels(nodes: Sequence[pb.NodeView]) -> dict[str, str]:
    shared = set.intersection(*(set(node.labels.items()) for node in nodes)) if nodes else set()
    return dict(sorted(shared))


def _free(node: pb.NodeView) -> Resources:
    return Resources(
        max(0, int(node.available_cpu_cores * 1000)),
        max(0, node.available_memory_mb),
        max(0, node.available_disk_gb),
    )


class RemoteHost:
    """Implements agent.ports.Host with the offer. Its utilization is unknown, so it is reported as 0."""

    def __init__(self) -> None:
        self.offer = Offer()
        self.labels: dict[str, str] = {}  # of the offer; changed in place

    def registered(self, found: Capabilities) -> Capabilities:
        return self.offer.capabilities(found)

    def take(self, offer: Offer) -> None:
        self.offer = offer
        self.labels.clear()
        self.labels.update(offer.labels)

    def cpu_millicores(self) -> int:
        return self.offer.total.cpu_millicores

    def cpu_time(self) -> CpuTime:
        return CpuTime(busy=0, total=0)

    def memory(self) -> Memory:
        return Memory(total_mb=max(1, self.offer.total.memory_mb), used_mb=0)

    def disk(self, path: Path) -> Disk:
        return Disk(self.offer.total.disk_gb, 0, 0.0)


class Offers:
    """Updates the offer of this node from the free capacity of the remote cluster."""

    def __init__(
        self,
        remote: Remote,
        journal: Journal,
        host: RemoteHost,
        limits: Limits,
        address: str,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._remote = remote
        self._address = address
        self._journal = journal
        self._host = host
        self._limits = limits
        self._changed = changed
        self._fails = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """While the remote cluster does not respond, the last offer stays valid."""
        try:
            offer = await self._present()
        except (RuntimeUnavailableError, RefusedError) as err:
            if not self._fails:
                log.warning("offer.not_refreshed", reason=str(err))
            self._fails = True
            return
        self._fails = False
        if offer.differs_from(self._host.offer):
            log.info("offer.changed", cpu_millicores=offer.total.cpu_millicores)
            self._host.take(offer)
            self._changed()

    async def _present(self) -> Offer:
        mode = await self._remote.mode()
        offer = offer_of(await self._remote.nodes(), self._used(), self._limits)
        return replace(
            offer,
            images=await self._images() if WorkloadType.VM in offer.types else frozenset(),
            remote=f"{mode.cluster_id} {self._address}",
        )

    async def _images(self) -> frozenset[str]:
        """Without permission to list images, only VMs with an image URL can be offloaded."""
        try:
            return frozenset(await self._remote.images())
        except RefusedError:
            return frozenset()

    def _used(self) -> Resources:
        """What the workloads reserve in the remote cluster. A stopped one reserves only its disks."""
        used = Resources()
        for entry in self._journal.entries.values():
            resources = requested(entry.order.spec)
            if entry.order.desired is Desired.RUNNING:
                used += resources
            else:
                used += Resources(disk_gb=resources.disk_gb)
        return used
