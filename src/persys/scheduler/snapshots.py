"""The whole state as one file: from the store at one revision, or from memory while there is no store."""

from collections.abc import Iterator

from msgspec import Struct

from persys.infra.clock import Clock
from persys.scheduler.cluster import Cluster
from persys.scheduler.committer import Committer
from persys.store import keys
from persys.store.port import Store
from persys.wire import records
from persys.wire.snapshot import FORMAT, Header, count, write


class Snapshots:
    def __init__(self, store: Store, cluster: Cluster, committer: Committer, clock: Clock) -> None:
        self._store = store
        self._cluster = cluster
        self._committer = committer
        self._clock = clock

    async def take(self) -> Iterator[bytes]:
        """The chunks of the file. Outside normal mode memory is the best there is, and is asked."""
        if self._committer.modes.is_frozen:
            return self._written(memory_records(self._cluster), revision=0, source="memory")
        stored = await self._store.read("/")
        kept = {record.key: record.value for record in stored.records if is_kept(record.key)}
        return self._written(kept, revision=stored.revision, source="store")

    def _written(self, kept: dict[str, bytes], *, revision: int, source: str) -> Iterator[bytes]:
        marker = self._committer.lead.marker
        header = Header(
            FORMAT,
            cluster_uid=marker.uid if marker else "",
            taken_at=self._clock.now(),
            revision=revision,
            source=source,
            counts=count(kept),
        )
        return write(header, kept.items())


def is_kept(key: str) -> bool:
    """Who leads, until when nodes may be silent, what DNS says: of the moment and not of the cluster."""
    return key.startswith(keys.RECORDS) and not keys.is_node_lease(key)


def memory_records(cluster: Cluster) -> dict[str, bytes]:
    """What is on record, as memory has it: without the history, which only the store has."""
    found: dict[str, Struct] = {
        keys.node_key(node_id): member.node for node_id, member in cluster.members.items()
    }
    for workload_id, entry in cluster.entries.items():
        found[keys.workload_key(workload_id)] = entry.workload
        for key, record in (
            (keys.assignment_key(workload_id), entry.assignment),
            (keys.belief_key(workload_id), entry.belief),
            (keys.retry_key(workload_id), entry.retry),
        ):
            if record is not None:
                found[key] = record
    for node_id, buried in cluster.tombstones.items():
        for workload_id, tombstone in buried.items():
            found[keys.tombstone_key(node_id, workload_id)] = tombstone
    found |= lasting(cluster)
    return {key: records.encode(record) for key, record in found.items()}


def lasting(cluster: Cluster) -> dict[str, Struct]:
    """What no node knows of, and no recovery decides on: it is kept as memory has it."""
    tokens = {keys.token_key(token_id): token for token_id, token in cluster.tokens.items()}
    secrets = {keys.secret_key(name): secret for name, secret in cluster.secrets.items()}
    removed = {keys.removed_key(node_id): one for node_id, one in cluster.removed.items()}
    return {**tokens, **secrets, **removed}
