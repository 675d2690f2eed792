"""The port's nouns as etcd's messages and back, under a key prefix."""

from collections.abc import Sequence

from persys.store.gen import rpc_pb2 as pb
from persys.store.port import Change, Record, Unit


class Namespace:
    """`prefix` stands before every key in etcd, and nobody above this file sees it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def encode(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def decode(self, key: bytes) -> str:
        return key[len(self._prefix) :].decode()

    def span(self, prefix: str) -> tuple[bytes, bytes]:
        """The first key with the prefix, and the first beyond."""
        first = self.encode(prefix)
        # No byte of UTF-8 is 0xFF, so raising the last one stays a byte. Zeros mean all keys.
        return (first, first[:-1] + bytes([first[-1] + 1])) if first else (b"\0", b"\0")

    def record(self, pair: pb.KeyValue) -> Record:
        return Record(self.decode(pair.key), pair.value, pair.mod_revision)

    def change(self, event: pb.Event) -> Change:
        value = None if event.type == pb.Event.DELETE else event.kv.value
        return Change(self.decode(event.kv.key), value, event.kv.mod_revision)

    def watch_request(self, prefix: str, *, after: int) -> pb.WatchRequest:
        key, end = self.span(prefix)
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=key, range_end=end, start_revision=after + 1, fragment=True
            )
        )

    def transaction(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> pb.TxnRequest:
        """Write everything if all guards hold, else tell the versions of all guarded keys."""
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
        """Of the keys that exist, from the failure branch."""
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
