"""Node pools as users change them. The records are changed one at a time, so that their number is bounded."""

from collections.abc import Callable

from msgspec.structs import replace

from persys.core.nodepools.checks import check_pool
from persys.errors import NotFoundError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.nodepool import Machine, NodePool
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

POOLS_MAX = 64
_ALL = "*"


class NodePools:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        cluster_id: str,
        check_provider: Callable[[NodePool], None],
        changed: Callable[[str], None],
        locks: KeyedLock[str],
    ) -> None:
        """`check_provider` raises RefusedError if this scheduler cannot use the provider of a pool.

        `changed` is called after each change. `locks` serialize the changes of a pool and its machines.
        """
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._cluster_id = cluster_id
        self._check_provider = check_provider
        self._changed = changed
        self._locks = locks

    def get(self, pool_id: str) -> NodePool:
        pool = self._cluster.node_pools.get(pool_id)
        if pool is None:
            raise NotFoundError("node pool", pool_id)
        return pool

    def all(self) -> list[NodePool]:
        return [pool for _, pool in sorted(self._cluster.node_pools.items())]

    def machines(self, pool: NodePool) -> list[Machine]:
        return [one for one in self._cluster.machines.values() if one.pool_id == pool.pool_id]

    async def apply(self, wanted: NodePool) -> NodePool:
        """Create or update a pool. What the scheduler has recorded about it stays. Raises RefusedError."""
        check_pool(wanted, self._cluster_id)
        self._check_provider(wanted)

        def make(known: NodePool | None) -> tuple[NodePool, EventKind]:
            if known is None:
                if len(self._cluster.node_pools) >= POOLS_MAX:
                    raise RefusedError(
                        f"{POOLS_MAX} node pools exist: expected at most {POOLS_MAX}"
                    )
                return replace(wanted, created_at=self._clock.now()), EventKind.NODE_POOL_CREATED
            if known.deleting:
                raise RefusedError(f"node pool {known.pool_id} is being deleted; try again later")
            if known.provider != wanted.provider and self.machines(known):
                raise RefusedError(
                    f"node pool {known.pool_id} has machines of provider {known.provider}:"
                    " create another pool for another provider"
                )
            kept = replace(
                wanted,
                created_at=known.created_at,
                provisioning=replace(known.provisioning, retry_at=None),
                paused=known.paused,
            )
            return kept, EventKind.NODE_POOL_UPDATED

        return await self._change(wanted.pool_id, make)

    async def set_paused(self, pool_id: str, *, paused: bool) -> NodePool:
        def make(known: NodePool | None) -> tuple[NodePool, EventKind]:
            if known is None:
                raise NotFoundError("node pool", pool_id)
            kind = EventKind.NODE_POOL_PAUSED if paused else EventKind.NODE_POOL_RESUMED
            return replace(known, paused=paused), kind

        return await self._change(pool_id, make)

    async def delete(self, pool_id: str) -> NodePool:
        """Drain and destroy all machines, then drop the record."""

        def make(known: NodePool | None) -> tuple[NodePool, EventKind]:
            if known is None:
                raise NotFoundError("node pool", pool_id)
            return replace(known, deleting=True), EventKind.NODE_POOL_DELETE_ASKED

        return await self._change(pool_id, make)

    async def _change(
        self, pool_id: str, make: Callable[[NodePool | None], tuple[NodePool, EventKind]]
    ) -> NodePool:
        async def attempt() -> NodePool:
            known = self._cluster.node_pools.get(pool_id)
            pool, kind = make(known)
            if pool == known:
                return pool
            await self._committer.commit(
                Transaction(
                    done=lambda: self._cluster.node_pools.__setitem__(pool_id, pool),
                    puts={keys.node_pool_key(pool_id): pool},
                    events=[Event(self._clock.now(), kind, f"node pool {pool_id}")],
                )
            )
            return pool

        async with self._locks.hold(_ALL), self._locks.hold(pool_id):
            pool = await retry_on_conflict(attempt)
        self._changed(pool_id)
        return pool
