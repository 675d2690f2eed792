"""The store for clusters: etcd v3.

Units are packed into transactions within etcd's limits. The failure branch of a transaction reads the
versions of all guards: units with a conflict are dropped and the rest is sent again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Self

import grpc

from persys.errors import (
    CompactedError,
    FencedError,
    NotFoundError,
    PersysError,
    StoreUnavailableError,
)
from persys.store.conflicts import find_conflict
from persys.store.etcd_connection import EtcdAnswerError, EtcdConnection, EtcdOptions
from persys.store.gen import rpc_pb2 as pb
from persys.store.gen import rpc_pb2_grpc
from persys.store.limits import GUARDS_MAX, OPERATIONS_MAX, TRANSACTION_BYTES_MAX, check
from persys.store.port import (
    Committed,
    LeaseId,
    Outcome,
    PackedRecords,
    Record,
    RecordBlock,
    Snapshot,
    Unit,
    WatchEvent,
)


def pack(units: Sequence[Unit], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Positions of the units per transaction. `sizes` are their bytes, each within the limits."""
    together: list[int] = []
    guards = writes = total = 0
    for position, (unit, size) in enumerate(zip(units, sizes, strict=True)):
        guards += len(unit.guards)
        writes += len(unit.puts) + len(unit.deletes)
        total += size
        full = guards > GUARDS_MAX or writes > OPERATIONS_MAX or total > TRANSACTION_BYTES_MAX
        if full and together:
            yield together
            together = []
            guards, writes, total = len(unit.guards), len(unit.puts) + len(unit.deletes), size
        together.append(position)
    if together:
        yield together


__all__ = ["EtcdOptions", "EtcdStore"]

# More in flight than this does not make etcd faster: it groups them into one fsync anyway.
_TRANSACTIONS_AT_ONCE_MAX = 8
_PAGE_RECORDS_FIRST = 64
_PAGE_RECORDS_MAX = 2000
_PAGE_BYTES = 4 * 1024 * 1024
# A read spread over pages starts again when its revision is compacted away under it.
_READS_MAX = 3


class EtcdStore:
    def __init__(self, options: EtcdOptions) -> None:
        self._connection = EtcdConnection(options, stubs=_Stubs, authenticate=_authenticate)
        self._names = _Namespace(options.prefix)
        self._transactions = 0
        self._commits = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def open(cls, options: EtcdOptions) -> Self:
        """Raises SettingsError for options that etcd refuses. An unreachable etcd fails the later calls."""
        store = cls(options)
        try:
            await store._connection.sign_in()
        except BaseException:
            await store._connection.close()
            raise
        return store

    @property
    def transactions(self) -> int:
        return self._transactions

    async def get(self, key: str) -> Record | None:
        answer = await self._range(pb.RangeRequest(key=self._names.encode(key)))
        return self._names.record(answer.kvs[0]) if answer.kvs else None

    async def read(self, prefix: str) -> Snapshot:
        for _ in range(_READS_MAX - 1):
            try:
                return await self._read_pages(prefix)
            except CompactedError:
                continue
        return await self._read_pages(prefix)

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        packs = list(pack(units, check(units)))
        self._check_open()
        self._commits += 1
        self._idle.clear()
        try:
            outcomes = await self._commit_packs(units, packs, fence)
        finally:
            self._commits -= 1
            if not self._commits:
                self._idle.set()
        return [outcomes[position] for position in range(len(units))]

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        self._check_open()
        request = self._names.watch_request(prefix, after=after)
        # etcd reports an expired token of a watch only in a message, so the watch starts with a new one.
        self._connection.forget_token()
        stream, answer = await self._connection.begin(lambda stubs: stubs.watch.Watch, request)
        try:
            events: list[pb.Event] = []
            while True:
                if answer.compact_revision:
                    raise CompactedError(
                        f"changes after revision {after} are gone; "
                        f"the oldest kept is {answer.compact_revision}"
                    )
                if answer.canceled:
                    raise StoreUnavailableError(f"etcd ended the watch: {answer.cancel_reason}")
                events += answer.events
                if not answer.fragment:
                    for _, group in groupby(events, key=lambda event: event.kv.mod_revision):
                        yield tuple(self._names.change(event) for event in group)
                    events = []
                answer = await self._connection.next_answer(stream)
        finally:
            stream.cancel()

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        self._check_open()
        request = pb.LeaseGrantRequest(ttl=ttl_seconds)
        # Sent twice, the first lease is never used and expires.
        answer = await self._connection.call(
            lambda stubs: stubs.lease.LeaseGrant, request, repeatable=True
        )
        return LeaseId(answer.id)

    async def keep_lease(self, lease: LeaseId) -> bool:
        self._check_open()
        stream, answer = await self._connection.begin(
            lambda stubs: stubs.lease.LeaseKeepAlive, pb.LeaseKeepAliveRequest(id=lease)
        )
        stream.cancel()
        return bool(answer.ttl > 0)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._check_open()
        try:
            await self._connection.call(
                lambda stubs: stubs.lease.LeaseRevoke,
                pb.LeaseRevokeRequest(id=lease),
                repeatable=True,
            )
        except EtcdAnswerError as err:
            if err.code is not grpc.StatusCode.NOT_FOUND:  # it has already ended
                raise

    async def compact(self, revision: int) -> None:
        self._check_open()
        # etcd drops a deletion in the revision at which it compacts: use the revision before.
        if revision <= 1:
            return
        try:
            await self._connection.call(
                lambda stubs: stubs.kv.Compact,
                pb.CompactionRequest(revision=revision - 1),
                repeatable=True,
            )
        except EtcdAnswerError as err:
            # Already compacted further, or a revision that does not exist yet.
            if err.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise

    async def close(self) -> None:
        self._closed = True
        await self._idle.wait()
        await self._connection.close()

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        self._check_open()
        answer: pb.RangeResponse = await self._connection.call(
            lambda stubs: stubs.kv.Range, request, repeatable=True
        )
        return answer

    async def _read_pages(self, prefix: str) -> Snapshot:
        key, end = self._names.span(prefix)
        blocks: list[RecordBlock] = []
        revision, limit = 0, _PAGE_RECORDS_FIRST
        while True:
            request = pb.RangeRequest(key=key, range_end=end, limit=limit, revision=revision)
            try:
                answer = await self._range(request)
            except EtcdAnswerError as err:
                if err.code is grpc.StatusCode.OUT_OF_RANGE:
                    raise CompactedError(f"revision {revision} was compacted while read") from err
                raise
            revision = revision or answer.header.revision
            page = [self._names.record(pair) for pair in answer.kvs]
            if page:
                blocks.append(RecordBlock([(one.key, one.value, one.version) for one in page]))
            if not answer.more:
                return Snapshot(revision, PackedRecords(blocks))
            key = answer.kvs[-1].key + b"\0"
            record_bytes = max(1, answer.ByteSize() // len(answer.kvs))
            limit = min(_PAGE_RECORDS_MAX, max(1, _PAGE_BYTES // record_bytes))

    async def _commit_packs(
        self, units: Sequence[Unit], packs: list[list[int]], fence: tuple[str, int] | None
    ) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        if len(packs) == 1:
            await self._commit_pack(units, packs[0], fence, outcomes)
            return outcomes
        failures: list[PersysError] = []
        slots = asyncio.Semaphore(_TRANSACTIONS_AT_ONCE_MAX)

        async def commit_one(positions: list[int]) -> None:
            async with slots:
                if failures:
                    return
                try:
                    await self._commit_pack(units, positions, fence, outcomes)
                except PersysError as err:
                    failures.append(err)

        async with asyncio.TaskGroup() as group:
            for positions in packs:
                group.create_task(commit_one(positions))
        if failures:
            # FencedError is final, so it takes precedence over other failures.
            raise next((err for err in failures if isinstance(err, FencedError)), failures[0])
        return outcomes

    async def _commit_pack(
        self,
        units: Sequence[Unit],
        positions: list[int],
        fence: tuple[str, int] | None,
        outcomes: dict[int, Outcome],
    ) -> None:
        while positions:
            together = [units[position] for position in positions]
            answer = await self._transact(together, fence)
            if answer.succeeded:
                self._transactions += any(unit.puts or unit.deletes for unit in together)
                done = Committed(answer.header.revision)
                outcomes.update(dict.fromkeys(positions, done))
                return
            found = self._names.versions(answer)
            if fence is not None and found.get(fence[0], 0) != fence[1]:
                raise FencedError(f"{fence[0]} is no longer at version {fence[1]}")
            conflicts = self._find_conflicts(units, positions, found)
            assert conflicts, "etcd reports a failed guard, but all guards hold"
            outcomes.update(conflicts)
            positions = [position for position in positions if position not in conflicts]

    @staticmethod
    def _find_conflicts(
        units: Sequence[Unit], positions: list[int], found: Mapping[str, int]
    ) -> dict[int, Outcome]:
        judged = {position: find_conflict(units[position], found) for position in positions}
        return {position: one for position, one in judged.items() if one is not None}

    async def _transact(
        self, units: Sequence[Unit], fence: tuple[str, int] | None
    ) -> pb.TxnResponse:
        request = self._names.transaction(units, fence)
        try:
            answer: pb.TxnResponse = await self._connection.call(
                lambda stubs: stubs.kv.Txn, request, repeatable=False
            )
        except EtcdAnswerError as err:
            leases = {str(unit.lease) for unit in units if unit.lease is not None}
            if err.code is grpc.StatusCode.NOT_FOUND and leases:
                raise NotFoundError("lease", " or ".join(sorted(leases))) from err
            raise
        return answer

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")


class _Stubs:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.kv = rpc_pb2_grpc.KVStub(channel)
        self.lease = rpc_pb2_grpc.LeaseStub(channel)
        self.watch = rpc_pb2_grpc.WatchStub(channel)
        self.auth = rpc_pb2_grpc.AuthStub(channel)


async def _authenticate(stubs: _Stubs, options: EtcdOptions) -> str:
    request = pb.AuthenticateRequest(name=options.user, password=options.password)
    answer = await stubs.auth.Authenticate(request, timeout=options.deadline_seconds)
    return str(answer.token)


class _Namespace:
    """Converts between the types of the port and etcd messages. `prefix` precedes every key in etcd."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def encode(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def decode(self, key: bytes) -> str:
        return key[len(self._prefix) :].decode()

    def span(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key with the prefix, and the first key after them."""
        first = self.encode(prefix)
        # UTF-8 never contains 0xFF, so the last byte can be incremented. Zeros mean all keys.
        return (first, first[:-1] + bytes([first[-1] + 1])) if first else (b"\0", b"\0")

    def record(self, pair: pb.KeyValue) -> Record:
        return Record(self.decode(pair.key), pair.value, pair.mod_revision)

    def change(self, event: pb.Event) -> WatchEvent:
        value = None if event.type == pb.Event.DELETE else event.kv.value
        return WatchEvent(self.decode(event.kv.key), value, event.kv.mod_revision)

    def watch_request(self, prefix: str, *, after: int) -> pb.WatchRequest:
        key, end = self.span(prefix)
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=key, range_end=end, start_revision=after + 1, fragment=True
            )
        )

    def transaction(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> pb.TxnRequest:
        """Write everything if all guards hold, otherwise read the versions of all guarded keys."""
        # Units may rely on the same key, even on different versions of it.
        guards = {guard for unit in units for guard in unit.guards.items()}
        if fence is not None:
            guards.add(fence)
        return pb.TxnRequest(
            compare=[
                pb.Compare(
                    result=pb.Compare.EQUAL,
                    target=pb.Compare.MOD,
                    key=self.encode(key),
                    mod_revision=version,
                )
                for key, version in guards
            ],
            success=[operation for unit in units for operation in self._writes(unit)],
            failure=[
                pb.RequestOp(request_range=pb.RangeRequest(key=self.encode(key), keys_only=True))
                for key in {key for key, _ in guards}
            ],
        )

    def versions(self, answer: pb.TxnResponse) -> dict[str, int]:
        """Versions of the existing keys, from the failure branch."""
        return {
            self.decode(pair.key): pair.mod_revision
            for response in answer.responses
            for pair in response.response_range.kvs
        }

    def _writes(self, unit: Unit) -> list[pb.RequestOp]:
        lease = unit.lease or 0
        puts = [
            pb.RequestOp(request_put=pb.PutRequest(key=self.encode(key), value=value, lease=lease))
            for key, value in unit.puts.items()
        ]
        return puts + [
            pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self.encode(key)))
            for key in unit.deletes
        ]
