"""Lists the data on this node (managed volumes, VM disks), and deletes data without a workload."""

from collections.abc import Callable
from functools import partial

from persys.agent.journal.store import Journal
from persys.agent.ports import Disks, Volumes
from persys.errors import NotFoundError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.model.ids import WorkloadId
from persys.model.node import VolumeView


class Inventory:
    def __init__(
        self,
        volumes: Volumes,
        disks: Callable[[], Disks | None],
        journal: Journal,
        locks: KeyedLock[WorkloadId],
        owned: OwnedWork,
    ) -> None:
        """`disks` returns None while this node has no libvirt."""
        self._volumes = volumes
        self._disks = disks
        self._journal = journal
        self._locks = locks
        self._owned = owned

    async def seen(self) -> list[VolumeView]:
        """All volumes and disks. Raises RuntimeUnavailableError rather than return an incomplete list."""
        source = self._disks()
        disks = await source.inventory() if source is not None else []
        return sorted(
            [*await self._volumes.inventory(), *disks],
            key=lambda each: (each.workload_id, each.name),
        )

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError, RefusedError."""
        key = f"{workload_id}/{name}"
        await self._owned.finish("volume.delete", key, partial(self._delete, workload_id, name))

    async def _delete(self, workload_id: WorkloadId, name: str) -> None:
        async with self._locks.hold(
            workload_id
        ):  # no order for the workload is processed meanwhile
            if workload_id in self._journal.entries:
                raise RefusedError(
                    f"volume {name} is in use by workload {workload_id}; delete the workload first"
                )
            try:
                await self._volumes.delete(workload_id, name)
            except NotFoundError:
                disks = self._disks()
                if disks is None:
                    raise
                await disks.delete(workload_id, name)
