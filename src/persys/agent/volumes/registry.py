"""The registry of volumes on this node: owner and whether attached. It is part of the journal.

A volume is added after its creation and removed after its deletion, so a registered volume exists. If its
data is missing nevertheless, it was lost and is never recreated automatically.
"""

from persys.agent.journal.records import JournalChange
from persys.agent.journal.store import Journal
from persys.model.ids import WorkloadId
from persys.model.node import Volume


class VolumeRegistry:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def get(self, workload_id: WorkloadId, name: str) -> Volume | None:
        return self._journal.volumes.get((workload_id, name))

    def all(self) -> list[Volume]:
        return list(self._journal.volumes.values())

    def of(self, workload_id: WorkloadId) -> list[Volume]:
        return [each for each in self.all() if each.workload_id == workload_id]

    def attached(self, driver: str) -> list[Volume]:
        """Attached volumes of a driver, which share its mount."""
        return [each for each in self.all() if each.driver == driver and each.attached]

    def has_owner(self, workload_id: WorkloadId) -> bool:
        return workload_id in self._journal.entries

    async def save(self, volume: Volume) -> None:
        """Raises StoreUnavailableError."""
        if self.get(volume.workload_id, volume.name) != volume:
            await self._journal.commit(JournalChange(volumes=[volume]))

    async def remove(self, volume: Volume) -> None:
        """Raises StoreUnavailableError."""
        if self.get(volume.workload_id, volume.name) is not None:
            await self._journal.commit(
                JournalChange(volumes_removed=[(volume.workload_id, volume.name)])
            )
