"""Takes snapshots of all records: from the store at one revision, or from memory in a frozen mode."""

from collections.abc import Iterator

from persys.infra.clock import Clock
from persys.scheduler.commit.committer import Committer
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import encoded, in_snapshot
from persys.store.port import Store
from persys.wire.stored.snapshot import FORMAT, Header, count, is_text, write


class Snapshots:
    def __init__(
        self, store: Store, cluster: ClusterState, committer: Committer, clock: Clock
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._committer = committer
        self._clock = clock

    async def take(self) -> Iterator[bytes]:
        """The chunks of the file. Outside normal mode the records come from memory."""
        if self._committer.modes.is_frozen:
            return self._written(encoded(self._cluster), revision=0, source="memory")
        stored = await self._store.read("/")
        kept = {
            record.key: record.value
            for record in stored.records
            if in_snapshot(record.key) and is_text(record.value)
        }
        return self._written(kept, revision=stored.revision, source="store")

    def _written(self, kept: dict[str, bytes], *, revision: int, source: str) -> Iterator[bytes]:
        marker = self._committer.leader_key.marker
        header = Header(
            FORMAT,
            cluster_uid=marker.uid if marker else "",
            taken_at=self._clock.now(),
            revision=revision,
            source=source,
            counts=count(kept),
        )
        return write(header, kept.items())
