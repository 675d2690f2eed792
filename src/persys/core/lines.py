"""Groups of waiting workloads with equal requirements; the amounts of all groups are in arrays."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.needs import Needs
from persys.model.ids import WorkloadId
from persys.model.resources import Resources

_NEVER = np.iinfo(np.int64).max  # more than any node has: marks a vacant position

Line = dict[WorkloadId, None]


class Lines:
    def __init__(self) -> None:
        self._lines: dict[Needs, Line] = {}
        self._places: dict[Needs, int] = {}
        self._at: list[Needs | None] = []
        self._vacant: list[int] = []
        self._amounts: NDArray[np.int64] = np.full((3, 64), _NEVER, dtype=np.int64)

    def add(self, workload_id: WorkloadId, needs: Needs) -> None:
        line = self._lines.get(needs)
        if line is None:
            line = self._lines[needs] = {}
            self._open(needs)
        line[workload_id] = None

    def discard(self, workload_id: WorkloadId, needs: Needs) -> None:
        line = self._lines[needs]
        del line[workload_id]
        if not line:
            del self._lines[needs]
            self._close(needs)

    def that_may_fit(self, free: Resources) -> Iterator[tuple[Needs, Line]]:
        """The groups whose amounts fit; their other requirements are not checked here."""
        cpu, memory, disk = self._amounts
        enough = (cpu <= free.cpu_millicores) & (memory <= free.memory_mb) & (disk <= free.disk_gb)
        for place in np.flatnonzero(enough):
            needs = self._at[int(place)]
            assert needs is not None
            yield needs, self._lines[needs]

    def _open(self, needs: Needs) -> None:
        if self._vacant:
            place = self._vacant.pop()
        else:
            place = len(self._at)
            self._at.append(None)
            if place >= self._amounts.shape[1]:
                more = np.full((3, place), _NEVER, dtype=np.int64)
                self._amounts = np.concatenate([self._amounts, more], axis=1)
        self._at[place] = needs
        self._places[needs] = place
        need = needs.resources
        self._amounts[:, place] = need.cpu_millicores, need.memory_mb, need.disk_gb

    def _close(self, needs: Needs) -> None:
        place = self._places.pop(needs)
        self._at[place] = None
        self._amounts[:, place] = _NEVER
        self._vacant.append(place)
