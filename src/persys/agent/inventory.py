"""All data of workloads on this node: managed volumes and disks of machines. What nobody has may go."""

from persys.agent.ports import Disks, Volumes
from persys.agent.state import State
from persys.errors import NotFoundError, RefusedError
from persys.infra.turns import Turns
from persys.model.ids import WorkloadId
from persys.model.volume import VolumeSeen


class Inventory:
    def __init__(
        self, volumes: Volumes, disks: Disks | None, state: State, turns: Turns[WorkloadId]
    ) -> None:
        self._volumes = volumes
        self._disks = disks
        self._state = state
        self._turns = turns

    async def seen(self) -> list[VolumeSeen]:
        """Raises RuntimeUnavailableError if disks cannot be told: a part would look like the whole."""
        disks = await self._disks.inventory() if self._disks is not None else []
        return sorted(
            [*await self._volumes.inventory(), *disks],
            key=lambda each: (each.workload_id, each.name),
        )

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError, RefusedError."""
        async with self._turns.of(workload_id):  # no order for it comes meanwhile
            if workload_id in self._state.entries:
                raise RefusedError(
                    f"workload {workload_id} has volume {name}; delete the workload first"
                )
            try:
                await self._volumes.delete(workload_id, name)
            except NotFoundError:
                if self._disks is None:
                    raise
                await self._disks.delete(workload_id, name)
