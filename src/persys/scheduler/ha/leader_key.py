"""The leader key, whose version is the fence of all writes, and the cluster marker.

Several schedulers on one etcd: the key is attached to a lease, and a scheduler that finds no key may take it.
One scheduler on its own file: it takes the key from its predecessor and keeps it. Schedulers are identified
by name. A store that comes back without our name (wiped, or an older copy) has no new leader; with another
name in it, it has.
"""

from collections.abc import Callable, Mapping

import structlog

from persys.core.recovery.mode import NewCluster, RecordsLost, SameCluster, classify_store
from persys.errors import ConflictError, FencedError, NotFoundError, RefusedError
from persys.infra.clock import Clock
from persys.model.cluster import ClusterMarker, Leader
from persys.scheduler.state.records import type_of
from persys.store import keys
from persys.store.port import Conflict, LeaseId, Record, Snapshot, Store, Unit
from persys.wire.stored import records
from persys.wire.stored.records import NewerSchemaError

log = structlog.get_logger()


def not_leading() -> FencedError:
    """The error of calls to a scheduler that has lost leadership."""
    return FencedError("this scheduler no longer leads; try again")


class LeaderKey:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        endpoint: str,
        new_uid: Callable[[], str],
        lease_seconds: int,
    ) -> None:
        """`name` identifies this scheduler, `endpoint` is where others call it.

        `lease_seconds` 0: no other scheduler uses this store.
        """
        self._store = store
        self._clock = clock
        self._new_uid = new_uid
        self.lease_seconds = lease_seconds
        self._lease: LeaseId | None = None
        self.name = name
        self.endpoint = endpoint
        self.fence: tuple[str, int] | None = None
        self.marker: ClusterMarker | None = None
        self._unreadable_version = 0

    async def take(
        self,
        *,
        puts: Mapping[str, bytes] | None = None,
        guards: Mapping[str, int] | None = None,
        again: bool = False,
    ) -> Mapping[str, int]:
        """Write the leader key and `puts`; returns the versions. `again`: only if no other has the key."""
        found = await self._store.get(keys.LEADER)
        if again or self.lease_seconds:
            self._check_ours(found)
        if not self.lease_seconds:
            return await self._write(found, {**(puts or {})}, guards or {})
        # Keys written under a lease are deleted with it, so the rest is written separately, with our fence.
        written = dict(await self._write(found, {}, {}, lease=await self._kept_lease()))
        if puts:
            outcome = (
                await self._store.commit([Unit(guards=guards or {}, puts=puts)], fence=self.fence)
            )[0]
            if isinstance(outcome, Conflict):
                raise ConflictError(f"{outcome.key} was changed by another writer")
            written |= dict.fromkeys(puts, outcome.revision)
        return written

    async def renew(self) -> bool:
        """Renew the lease and confirm leadership. Raises FencedError if another scheduler leads.

        False: the key is missing although no other scheduler leads, so the store may have lost data.
        """
        kept = self._lease is None or await self._store.keep_lease(self._lease)
        found = await self._store.get(keys.LEADER)
        self._check_ours(found)
        return kept and found is not None

    async def ensure_key(self, snapshot: Snapshot) -> None:
        """Write the leader key again if it is not as we wrote it."""
        found = snapshot.get(keys.LEADER)
        if found is None or (keys.LEADER, found.version) != self.fence:
            await self.take(again=True)

    async def renew_fence(self) -> None:
        """Write the leader key again if it exists. The store then refuses unanswered requests with the old
        fence that may still be in progress, so that they cannot change what is read next."""
        found = await self._store.get(keys.LEADER)
        self._check_ours(found)
        if found is not None:
            await self.take(again=True)

    async def hold_key(self) -> None:
        """In a store that has lost its records: hold the leader key, so that no new cluster is created."""
        if not self.lease_seconds or await self.stored_marker() is not None:
            return
        if await self._store.get(keys.LEADER) is None:
            await self.take(again=True)

    async def resign(self) -> None:
        """Let the next scheduler lead at once, instead of after the lease."""
        self.fence = None
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._store.revoke_lease(lease)

    async def check_not_taken(self) -> None:
        """Raises FencedError if another scheduler has taken over."""
        self._check_ours(await self._store.get(keys.LEADER))

    async def stored_marker(self) -> ClusterMarker | None:
        return self._read_marker(await self._store.get(keys.CLUSTER))

    async def check_marker_replaceable(self) -> None:
        """Raises RefusedError if a newer version wrote the marker: its store must not be rewritten."""
        found = await self._store.get(keys.CLUSTER)
        if found is None:
            return
        try:
            records.decode(found.value, ClusterMarker)
        except NewerSchemaError:
            raise
        except RefusedError:
            return  # damaged: an operator may replace it

    def take_marker(self, record: Record) -> None:
        """Take over the marker that the leader wrote. An unreadable one is judged at the next full read."""
        self.marker = self._read_marker(record) or self.marker

    def classify(
        self, snapshot: Snapshot, *, remembers: bool
    ) -> SameCluster | NewCluster | RecordsLost:
        """An unreadable marker counts as missing, but the cluster is not new."""
        marker = snapshot.get(keys.CLUSTER)
        return classify_store(
            self._read_marker(marker),
            holds_records=marker is not None
            or any(type_of(record.key) is not None for record in snapshot.records),
            known_uid=self.marker.uid if self.marker else "",
            remembers=remembers,
        )

    def new_marker(self) -> ClusterMarker:
        key = self._new_uid() + self._new_uid()
        return ClusterMarker(self._new_uid(), self._clock.now(), proof_key=key)

    async def _write(
        self,
        found: Record | None,
        puts: Mapping[str, bytes],
        guards: Mapping[str, int],
        *,
        lease: LeaseId | None = None,
    ) -> Mapping[str, int]:
        written = {keys.LEADER: records.encode(Leader(self.name, self.endpoint)), **puts}
        relies_on = {keys.LEADER: found.version if found else 0, **guards}
        try:
            unit = Unit(guards=relies_on, puts=written, lease=lease)
            outcome = (await self._store.commit([unit]))[0]
        except NotFoundError as err:
            self._lease = None
            raise ConflictError("the leader lease expired before it was used") from err
        if isinstance(outcome, Conflict):
            raise ConflictError("another scheduler is starting on this store at the same time")
        self.fence = (keys.LEADER, outcome.revision)
        return dict.fromkeys(written, outcome.revision)

    async def _kept_lease(self) -> LeaseId:
        if self._lease is None or not await self._store.keep_lease(self._lease):
            self._lease = await self._store.grant_lease(self.lease_seconds)
        return self._lease

    def _check_ours(self, found: Record | None) -> None:
        if found is not None and (leader := leader_of(found)).name != self.name:
            raise FencedError(f"{leader.name} leads now")

    def _read_marker(self, record: Record | None) -> ClusterMarker | None:
        if record is None:
            return None
        try:
            return records.decode(record.value, ClusterMarker)
        except RefusedError as err:
            if record.version != self._unreadable_version:
                self._unreadable_version = record.version
                log.error("cluster.marker_unreadable", key=record.key, reason=str(err))
            return None


def leader_of(record: Record) -> Leader:
    try:
        return records.decode(record.value, Leader)
    except RefusedError:
        return Leader(record.value.decode(errors="replace"))
