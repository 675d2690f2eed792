"""Who writes, and for which cluster: the leader's key, whose version is the fence, and the cluster's marker.

Two schedulers on one store tell each other apart by name. A store that came back without our name (wiped, or
an older copy of it) was taken over by nobody; with another name in it, it was.
"""

from collections.abc import Callable, Mapping

from persys.core.modes import Lost, New, Same, judge
from persys.errors import ConflictError, FencedError
from persys.infra.clock import Clock
from persys.model.mode import ClusterMarker
from persys.store import keys
from persys.store.port import Conflict, Record, Snapshot, Store, Unit
from persys.wire import records


class Lead:
    def __init__(self, store: Store, clock: Clock, *, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._new_uid = new_uid
        self.name = ""
        self.fence: tuple[str, int] | None = None
        self.marker: ClusterMarker | None = None

    async def take(
        self,
        *,
        puts: Mapping[str, bytes] | None = None,
        guards: Mapping[str, int] | None = None,
        again: bool = False,
    ) -> Mapping[str, int]:
        """Write our name, and `puts` with it; the new versions. `again`: only if nobody else wrote theirs."""
        found = await self._store.get(keys.LEADER)
        if again:
            self._check_ours(found)
        written = {keys.LEADER: self.name.encode(), **(puts or {})}
        relies_on = {keys.LEADER: found.version if found else 0, **(guards or {})}
        unit = Unit(guards=relies_on, puts=written)
        outcome = (await self._store.commit([unit]))[0]
        if isinstance(outcome, Conflict):
            raise ConflictError("another scheduler is starting on this store at the same moment")
        self.fence = (keys.LEADER, outcome.revision)
        return dict.fromkeys(written, outcome.revision)

    async def check_not_taken(self) -> None:
        """Raises FencedError if another scheduler has taken over."""
        self._check_ours(await self._store.get(keys.LEADER))

    async def stored_marker(self) -> ClusterMarker | None:
        return _decoded(await self._store.get(keys.CLUSTER))

    def judge(self, snapshot: Snapshot, *, remembers: bool) -> Same | New | Lost:
        found = {record.key: record for record in snapshot.records}
        return judge(
            _decoded(found.get(keys.CLUSTER)),
            holds_records=any(key.startswith(keys.RECORDS) for key in found),
            known_uid=self.marker.uid if self.marker else "",
            remembers=remembers,
        )

    def new_marker(self) -> ClusterMarker:
        return ClusterMarker(self._new_uid(), self._clock.now())

    def _check_ours(self, found: Record | None) -> None:
        if found is not None and found.value != self.name.encode():
            raise FencedError(f"{found.value.decode(errors='replace')} leads now")


def _decoded(record: Record | None) -> ClusterMarker | None:
    return None if record is None else records.decode(record.value, ClusterMarker)
