"""The local journal: an SQLite file, read once at start-up.

Readers use a copy in memory, which changes only after the commit. Group commit: changes that arrive while a
transaction is being synced share the next one. Only the newest deletion markers are stored by id; for older
ones only the highest epoch per cluster is stored.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import structlog

from persys.agent.journal.records import (
    PROBE,
    DeletionMarker,
    Entry,
    Image,
    JournalChange,
    Statement,
    StoredNetworks,
    statements_of,
)
from persys.agent.journal.secrets import Sealer, has_plain_values, journal_key_file, no_key_file
from persys.core.networks.addresses import MemberAddress
from persys.errors import RefusedError, SettingsError, StoreUnavailableError
from persys.infra.aio.group_commit import GroupCommit, Pending
from persys.infra.aio.supervisor import Supervisor
from persys.infra.encryption import KeyFile
from persys.model.action import Action, ActionState
from persys.model.ids import ActionId, NodeId, WorkloadId
from persys.model.node import Volume
from persys.wire.stored.records import NewerSchemaError, StructT, decode, encode

log = structlog.get_logger()

Key = TypeVar("Key")
Value = TypeVar("Value")

STALL_SECONDS = 10.0  # after which a write counts as stalled
PROBE_SECONDS = 5.0
ACTIONS_MAX = 2_000
DELETION_MARKERS_MAX = 5_000
_PRIVATE = 0o600
# Expected errors of a write.
_WRITE_ERRORS = (sqlite3.Error, OSError, ValueError, OverflowError, MemoryError)
_MEMORY = Path(":memory:")  # an SQLite database in memory, for the simulation
_SCHEMA = """
CREATE TABLE IF NOT EXISTS identity (cluster_id TEXT NOT NULL, node_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS allegiance (cluster_uid TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS instance (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS contact (heard_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS run (clean INTEGER NOT NULL, resuming TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS crashes (id TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS images (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS volumes
    (id TEXT NOT NULL, name TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS networks (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS addresses
    (network TEXT NOT NULL, address TEXT NOT NULL, record BLOB NOT NULL,
     PRIMARY KEY (network, address)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS actions
    (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS burials
    (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS deleted_epochs
    (cluster_uid TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
"""


class JournalHealth:
    """The result of the last write, and the duration of the current one.

    While the disk of the journal is full or broken, the node refuses orders and reports the problem. Running
    workloads continue.
    """

    def __init__(self) -> None:
        self._problem = ""
        self._began_at: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the last write failed."""
        return bool(self._problem)

    def began(self, now: float) -> None:
        self._began_at = now

    def ended(self, problem: str) -> None:
        """`problem`: why the write failed; "" if it succeeded."""
        self._began_at = None
        if problem and not self._problem:
            log.error("journal.failed", reason=problem)
        elif self._problem and not problem:
            log.info("journal.recovered")
        self._problem = problem

    def stalled(self, now: float) -> str:
        """The problem if the current write is stalled; "" otherwise."""
        if self._began_at is None or now - self._began_at < STALL_SECONDS:
            return ""
        return f"journal: no response from its disk for {now - self._began_at:.0f} s"

    def problem(self, now: float) -> str:
        """Why the journal cannot be written; "" if the last write succeeded."""
        return self.stalled(now) or (f"journal: {self._problem}" if self._problem else "")


@dataclass(frozen=True, slots=True)
class LastRun:
    """How the previous run of the agent ended, according to the journal."""

    clean: bool = True
    resuming: WorkloadId | None = None
    crashes: Mapping[WorkloadId, int] = field(default_factory=dict)


class OnWrite(Protocol):
    def __call__(self, seconds: float, *, stored: bool) -> None:
        """Called with the duration of each transaction."""


class _EncodedChange(NamedTuple):
    change: JournalChange
    rows: list[Statement]


class Journal:
    def __init__(
        self,
        path: Path,
        *,
        cluster_id: str,
        node_id: NodeId,
        key_file: KeyFile | None = None,
        thread: Executor | None = None,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        """`key_file`: None means the key next to the journal, or a systemd credential.

        The simulation passes its own `thread` for writes, and a `connection` that outlives the agent.
        """
        # SQLite runs in its own thread, so that a slow disk does not block the event loop.
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._queue: GroupCommit[_EncodedChange] = GroupCommit()
        self.entries: dict[WorkloadId, Entry] = {}
        self.actions: dict[ActionId, Action] = {}
        self.deletion_markers: dict[WorkloadId, DeletionMarker] = {}
        # By cluster: the highest epoch of deletions that are not stored by id.
        self._deleted_epochs: dict[str, int] = {}
        self.images: dict[str, Image] = {}  # by name
        self.volumes: dict[tuple[WorkloadId, str], Volume] = {}
        self.networks = StoredNetworks()
        self.addresses: dict[tuple[str, str], MemberAddress] = {}  # by network and address
        self.members: dict[WorkloadId, list[MemberAddress]] = {}  # the same by workload
        # Workloads with a damaged row: their artefacts are not garbage. A new order replaces the row.
        self.unreadable: set[WorkloadId] = set()
        self.cluster_uid = ""  # of the cluster that this node last joined
        self.instance_id = ""  # of the last registration
        self.contact_at: datetime | None = None
        self.last_run = LastRun()
        self.health = JournalHealth()
        self.connection = (
            connection or self._thread.submit(_open, path, cluster_id, node_id).result()
        )
        without_key = path == _MEMORY and key_file is None
        found = key_file or journal_key_file(path)
        self._sealer = Sealer(no_key_file if without_key else found.make)
        try:
            self._thread.submit(self._read).result()
        except sqlite3.Error as err:
            text = (
                "cannot read the journal; restore it or move it away (running workloads continue)"
            )
            raise SettingsError(f"PERSYS_STATE_PATH={path}: {err}; {text}") from err

    async def run(self, supervisor: Supervisor, on_write: OnWrite) -> None:
        """Write queued changes. After a failed write, probe the disk periodically until it works again.

        `on_write` is called with each transaction.
        """
        while True:
            await self._queue.wait(PROBE_SECONDS if self.health.has_failed else None)
            batch = self._queue.next_batch()
            if not await self._write_all(batch, supervisor, on_write) and len(batch) > 1:
                for pending in batch:  # a change that cannot be written must not block the others
                    await self._write_all([pending], supervisor, on_write)

    async def commit(self, change: JournalChange, *, deadline_seconds: float | None = None) -> None:
        """Write a change to disk. StoreUnavailableError: it is unknown whether it was written.

        The change is encoded here, so that an encoding error affects this caller only. It is written even if
        the caller is cancelled or its deadline expires. While the disk is stalled, changes are refused.
        """
        loop = asyncio.get_running_loop()
        if stalled := self.health.stalled(loop.time()):
            raise StoreUnavailableError(stalled)
        try:
            statements = statements_of(change, self._sealer.seal)
        except RefusedError as err:
            raise StoreUnavailableError(f"journal: {err}") from err
        written = self._queue.submit(_EncodedChange(change, statements))
        try:
            async with asyncio.timeout(deadline_seconds):
                await written
        except TimeoutError as err:
            text = f"journal: not written within {deadline_seconds:g} s"
            raise StoreUnavailableError(text) from err

    def problem(self) -> str:
        """Why the journal cannot be written; "" if it can."""
        return self.health.problem(asyncio.get_running_loop().time())

    async def _write_all(
        self, batch: Sequence[Pending[_EncodedChange]], supervisor: Supervisor, on_write: OnWrite
    ) -> bool:
        """Returns whether the batch was written. A failed batch of one change fails its caller."""
        statements = [statement for pending in batch for statement in pending.item.rows]
        loop = asyncio.get_running_loop()
        began = loop.time()
        problem = await self._written(statements or [PROBE], supervisor)
        on_write(loop.time() - began, stored=not problem)
        self.health.ended(problem)
        if problem:
            if len(batch) == 1:
                batch[0].fail(StoreUnavailableError(f"journal: {problem}"))
            return False
        for pending in batch:
            self._apply(pending.item.change)
            pending.succeed()
        return True

    async def _written(self, statements: Sequence[Statement], supervisor: Supervisor) -> str:
        """Write the statements. Returns the problem; "" on success."""
        problems: list[str] = []
        loop = asyncio.get_running_loop()
        self.health.began(loop.time())
        with supervisor.contain(
            "journal.write", "", failed=lambda error: problems.append(error.text)
        ):
            try:
                await loop.run_in_executor(self._thread, self._write, statements)
            except _WRITE_ERRORS as err:
                problems.append(str(err) or type(err).__name__)
        return problems[0] if problems else ""

    def begin_run(self, crashes: Mapping[WorkloadId, int]) -> None:
        """Mark the run as unclean until `end_run`. Blocks; called before anything runs."""
        self._note_run(False, crashes)

    def end_run(self) -> None:
        """Mark the run as clean. Blocks; called after everything has ended."""
        self._note_run(True, None)

    def _note_run(self, clean: bool, crashes: Mapping[WorkloadId, int] | None) -> None:
        """On a full disk the mark is lost, and a crash may look like a clean exit. The agent runs anyway."""
        try:
            self._thread.submit(self._mark_run, clean, crashes).result()
        except _WRITE_ERRORS as err:
            self.health.ended(str(err) or type(err).__name__)

    def _mark_run(self, clean: bool, crashes: Mapping[WorkloadId, int] | None) -> None:
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM run")
            cursor.execute("INSERT INTO run VALUES (?, '')", (clean,))
            if crashes is not None:
                cursor.execute("DELETE FROM crashes")
                cursor.executemany("INSERT INTO crashes VALUES (?, ?)", list(crashes.items()))

    def deleted_epoch(self, workload_id: WorkloadId) -> int:
        """Orders of this cluster up to this epoch are stale, for a workload that is not in the journal.

        Epochs come from one counter per cluster, so a new order has a higher epoch than all older deletions.
        A workload with a damaged row was not deleted.
        """
        marker = self.deletion_markers.get(workload_id)
        if marker is not None and marker.cluster_uid in ("", self.cluster_uid):
            return marker.epoch
        if workload_id in self.unreadable:
            return 0
        return max(self._deleted_epochs.get(uid, 0) for uid in ("", self.cluster_uid))

    def update(self, entry: Entry, action: Action | None = None) -> None:
        """Change the copy in memory until the next commit of this entry. A crash loses the change."""
        self.entries[entry.order.workload_id] = entry
        if action is not None:
            self.actions[action.id] = action

    def open_action(self, entry: Entry) -> Action | None:
        """The open action of this workload."""
        action = self.actions.get(entry.action_id)
        if action is None or action.state not in (ActionState.PENDING, ActionState.RUNNING):
            return None
        return action

    def close(self) -> None:
        self._thread.submit(self.connection.close).result()
        self._thread.shutdown()

    def _apply(self, change: JournalChange) -> None:
        if change.entry is not None:
            self.entries[change.entry.order.workload_id] = change.entry
            self.unreadable.discard(change.entry.order.workload_id)
        if change.deleted is not None:
            self.entries.pop(change.deleted, None)
        if change.undeleted is not None:
            self.deletion_markers.pop(change.undeleted, None)
        self.cluster_uid = change.cluster_uid or self.cluster_uid
        self.instance_id = change.instance_id or self.instance_id
        self.contact_at = change.contact_at or self.contact_at
        for action in change.actions:
            self.actions[action.id] = action
        for marker in change.deletion_markers:
            self.deletion_markers[marker.workload_id] = marker
        for image in change.images:
            self.images[image.name] = image
        for name in change.images_removed:
            self.images.pop(name, None)
        for volume in change.volumes:
            self.volumes[volume.workload_id, volume.name] = volume
        for key in change.volumes_removed:
            self.volumes.pop(key, None)
        self.networks = change.networks or self.networks
        for freed in change.addresses_removed:
            self.addresses.pop((freed.network_id, freed.address), None)
        for member in change.addresses:
            self.addresses[member.network_id, member.address] = member
        if change.addresses or change.addresses_removed:
            self._index_members()
        for action_id in change.actions_removed:
            self.actions.pop(action_id, None)
        _keep_newest(self.actions, ACTIONS_MAX)
        _raise_epochs(
            self._deleted_epochs, _keep_newest(self.deletion_markers, DELETION_MARKERS_MAX)
        )

    def _index_members(self) -> None:
        self.members = {}
        for member in self.addresses.values():
            self.members.setdefault(member.workload_id, []).append(member)

    def _write(self, statements: Sequence[Statement]) -> None:
        with self._transaction() as cursor:
            for statement in statements:
                cursor.executemany(statement.sql, statement.rows)
            self._keep_deleted_epochs(cursor)
            for table, count in (("actions", ACTIONS_MAX), ("burials", DELETION_MARKERS_MAX)):
                cursor.execute(
                    f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - {count}"  # noqa: S608
                )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self.connection.cursor()
        if self.connection.in_transaction:  # an earlier transaction could not be ended
            cursor.execute("ROLLBACK")
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            cursor.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # otherwise the next transaction rolls back
                if self.connection.in_transaction:
                    cursor.execute("ROLLBACK")
            raise

    def _keep_deleted_epochs(self, cursor: sqlite3.Cursor) -> None:
        """Store the highest epochs of the deletion markers that this write drops."""
        old = "SELECT record FROM burials WHERE number <= (SELECT max(number) FROM burials) - ?"
        epochs: dict[str, int] = {}
        for (data,) in cursor.execute(old, (DELETION_MARKERS_MAX,)).fetchall():
            with suppress(RefusedError):  # skip damaged rows
                _raise_epochs(epochs, [decode(data, DeletionMarker)])
        cursor.executemany(
            "INSERT INTO deleted_epochs VALUES (?, ?) "
            "ON CONFLICT (cluster_uid) DO UPDATE SET epoch = max(epoch, excluded.epoch)",
            list(epochs.items()),
        )

    def _read(self) -> None:
        """Read all rows. Damaged rows are skipped. Raises NewerSchemaError."""
        plain: list[Entry] = []
        for name, entry in self._intact("SELECT id, record FROM entries ORDER BY id", Entry):
            opened = self._opened(name, entry) if entry is not None else None
            if opened is None:
                self.unreadable.add(WorkloadId(name))
                continue
            self.entries[opened.order.workload_id] = opened
            if entry is not None and has_plain_values(entry):
                plain.append(entry)
        self._seal_plain(plain)
        for _, action in self._intact("SELECT id, record FROM actions ORDER BY number", Action):
            if action is not None:
                self.actions[action.id] = action
        for _, marker in self._intact(
            "SELECT id, record FROM burials ORDER BY number", DeletionMarker
        ):
            if marker is not None:
                self.deletion_markers[marker.workload_id] = marker
        self._deleted_epochs = dict(
            self.connection.execute("SELECT cluster_uid, epoch FROM deleted_epochs")
        )
        for _, image in self._intact("SELECT name, record FROM images", Image):
            if image is not None:
                self.images[image.name] = image
        volumes = "SELECT id || '/' || name, record FROM volumes ORDER BY id, name"
        for _, volume in self._intact(volumes, Volume):
            if volume is not None:
                self.volumes[volume.workload_id, volume.name] = volume
        for _, networks in self._intact("SELECT id, record FROM networks", StoredNetworks):
            self.networks = networks or self.networks
        members = "SELECT network || '/' || address, record FROM addresses ORDER BY address"
        for _, member in self._intact(members, MemberAddress):
            if member is not None:
                self.addresses[member.network_id, member.address] = member
        self._index_members()
        crashes = dict(self.connection.execute("SELECT id, count FROM crashes"))
        for clean, resuming in self.connection.execute("SELECT clean, resuming FROM run"):
            self.last_run = LastRun(bool(clean), resuming or None, crashes)
        for (uid,) in self.connection.execute("SELECT cluster_uid FROM allegiance"):
            self.cluster_uid = uid
        for (instance_id,) in self.connection.execute("SELECT id FROM instance"):
            self.instance_id = instance_id
        for (text,) in self.connection.execute("SELECT heard_at FROM contact"):
            self.contact_at = datetime.fromisoformat(text)

    def _opened(self, name: str, entry: Entry) -> Entry | None:
        """Decrypt the secret values. None: not possible."""
        try:
            return self._sealer.open(entry)
        except RefusedError as err:
            log.error("journal.secrets_not_opened", key=name, reason=str(err))
            return None

    def _seal_plain(self, plain: Sequence[Entry]) -> None:
        """Encrypt secret values that an older agent version stored in clear text, and vacuum the file."""
        if not plain:
            return
        try:
            rows = [(encode(self._sealer.seal(each)), each.order.workload_id) for each in plain]
            with self._transaction() as cursor:
                cursor.executemany("UPDATE entries SET record = ? WHERE id = ?", rows)
            self.connection.execute("VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (RefusedError, *_WRITE_ERRORS) as err:
            log.error("journal.secrets_not_sealed", reason=str(err))  # retried at the next start
        else:
            log.info("journal.secrets_sealed", count=len(plain))

    def _intact(self, query: str, kind: type[StructT]) -> Iterator[tuple[str, StructT | None]]:
        """The key and the record of each row; None if the row is damaged."""
        for name, data in self.connection.execute(query):
            try:
                yield name, decode(data, kind)
            except NewerSchemaError:
                raise
            except RefusedError as err:
                log.error("journal.row_damaged", kind=kind.__name__, key=name, reason=str(err))
                yield name, None


def stored_node_id(path: Path) -> str:
    """The node id in the journal; "" if there is no journal. Raises SettingsError."""
    if not path.exists():
        return ""
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=1.0)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            found = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'identity'"
            ).fetchone()
            known = found and connection.execute("SELECT node_id FROM identity").fetchone()
    except sqlite3.Error as err:
        raise SettingsError(f"PERSYS_STATE_PATH={path}: {err}") from err
    return str(known[0]) if known else ""


def _open(path: Path, cluster_id: str, node_id: NodeId) -> sqlite3.Connection:
    try:
        if path != _MEMORY:
            _make_private(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        # The lock prevents a second agent on the same journal.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        _check_identity(connection, path, cluster_id, node_id)
    except (OSError, sqlite3.Error) as err:
        raise SettingsError(f"PERSYS_STATE_PATH={path}: {err}") from err
    return connection


def _make_private(path: Path) -> None:
    """Create the file with private permissions: orders contain secret values. SQLite copies them to its
    other files.

    An existing file is not opened: closing it would release the locks of the process that uses it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _PRIVATE))
    for part in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            part.chmod(_PRIVATE)


def _check_identity(
    connection: sqlite3.Connection, path: Path, cluster_id: str, node_id: NodeId
) -> None:
    """Refuse another node id: the agent would not recognise its own containers and start them again."""
    known = connection.execute("SELECT cluster_id, node_id FROM identity").fetchone()
    if known is None:
        connection.execute("INSERT INTO identity VALUES (?, ?)", (cluster_id, node_id))
    elif known == (cluster_id, node_id):
        return
    elif connection.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is None:
        connection.execute("UPDATE identity SET cluster_id = ?, node_id = ?", (cluster_id, node_id))
    else:
        raise SettingsError(
            f"PERSYS_STATE_PATH={path}: the journal belongs to node {known[1]} of cluster {known[0]}: "
            f"expected node {node_id} of cluster {cluster_id}"
        )


def _keep_newest(mapping: dict[Key, Value], count: int) -> list[Value]:
    """Remove and return the oldest values beyond the count."""
    return [mapping.pop(key) for key in list(islice(mapping, max(0, len(mapping) - count)))]


def _raise_epochs(epochs: dict[str, int], deletion_markers: Iterable[DeletionMarker]) -> None:
    for marker in deletion_markers:
        epochs[marker.cluster_uid] = max(epochs.get(marker.cluster_uid, 0), marker.epoch)
