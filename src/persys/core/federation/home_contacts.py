"""Which workloads of another cluster must be stopped because their home cluster is silent.

A workload with `stop_after` may run elsewhere after that time without contact. If another cluster runs it
here, this cluster has to stop it: its metadata has the id of its home cluster and the time without contact
after which it is stopped. Contacts are calls with the token of the home cluster; a new leader knows none and
counts from the start of its leadership.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from persys.core.federation.cluster_ids import HOME_CLUSTER
from persys.core.federation.scope import home_stop_after
from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Workload

SILENT = "HomeSilent"  # the reason code


class _Limit(NamedTuple):
    home: str
    seconds: int


class Overdue(NamedTuple):
    """A workload whose home cluster has been silent for longer than its limit."""

    workload_id: WorkloadId
    home: str
    limit_seconds: int
    silent_seconds: float

    @property
    def why(self) -> str:
        return (
            f"its home cluster {self.home} has not been in contact for {self.silent_seconds:.0f} s; "
            f"it may run without contact for {self.limit_seconds} s"
        )


def limit_of(workload: Workload) -> _Limit | None:
    """None: it does not depend on the contact of another cluster."""
    home, seconds = workload.metadata.get(HOME_CLUSTER, ""), home_stop_after(workload.metadata)
    if not home or not seconds or workload.desired is not Desired.RUNNING:
        return None
    return _Limit(home, seconds)


class HomeWorkloads:
    """The running workloads of other clusters, by their home cluster and limit."""

    def __init__(self) -> None:
        self._limits: dict[WorkloadId, _Limit] = {}
        self._by_limit: dict[_Limit, set[WorkloadId]] = {}

    def put(self, workload: Workload) -> None:
        limit, before = limit_of(workload), self._limits.get(workload.id)
        if limit == before:
            return
        self.drop(workload.id)
        if limit is not None:
            self._limits[workload.id] = limit
            self._by_limit.setdefault(limit, set()).add(workload.id)

    def drop(self, workload_id: WorkloadId) -> None:
        limit = self._limits.pop(workload_id, None)
        if limit is None:
            return
        self._by_limit[limit].discard(workload_id)
        if not self._by_limit[limit]:
            del self._by_limit[limit]

    def overdue(
        self, contacted_at: Mapping[str, float], *, since: float, now: float
    ) -> Iterator[Overdue]:
        """Those that must be stopped now, in a fixed order. All times are on the monotonic clock.

        `contacted_at` has the last contact of each home cluster; without one it counts from `since`. The
        work grows with the number of limits, not of workloads, as long as no home cluster is silent.
        """
        for limit in sorted(self._by_limit):
            silent = now - max(contacted_at.get(limit.home, since), since)
            if silent < limit.seconds:
                continue
            for workload_id in sorted(self._by_limit[limit]):
                yield Overdue(workload_id, limit.home, limit.seconds, silent)
