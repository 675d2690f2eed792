"""The format of snapshot files, which contain all records of a cluster.

A file is gzip of JSON lines: a header, then `["key", "stored bytes as text"]` for each record, then a footer
with the SHA-256 of all lines before it. A truncated or altered file is refused as a whole.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.errors import InvalidError

StructT = TypeVar("StructT", bound=Struct)

FORMAT = 1
CHUNK_BYTES_MAX = 256 * 1024
_LINES_PER_BLOCK = 1000
_GZIP = 31  # zlib's window bits for a gzip stream


class Header(Struct, frozen=True):
    persys_snapshot: int  # the format
    cluster_uid: str
    taken_at: datetime
    revision: int  # of the store; 0 when it was taken from memory
    source: str  # store, memory
    counts: dict[str, int]  # by the first part of the key


class Contents(Struct, frozen=True):
    header: Header
    records: list[tuple[str, bytes]]


class _Footer(Struct, frozen=True):
    sha256: str
    records: int


def write(header: Header, records: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Chunks of at most CHUNK_BYTES_MAX."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    ready = bytearray()
    for lines in _joined_lines(_lines(header, records)):
        ready += compressor.compress(lines)
        while len(ready) >= CHUNK_BYTES_MAX:
            yield bytes(ready[:CHUNK_BYTES_MAX])
            del ready[:CHUNK_BYTES_MAX]
    ready += compressor.flush()
    for begin in range(0, len(ready), CHUNK_BYTES_MAX):
        yield bytes(ready[begin : begin + CHUNK_BYTES_MAX])


def read(chunks: Iterable[bytes]) -> Contents:
    """Raises InvalidError with the problem of the file."""
    *lines, last = _decompressed_lines(chunks) or [b""]
    footer = _decoded(last, _Footer, "the file is truncated")
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
    if digest.hexdigest() != footer.sha256 or len(lines) != footer.records + 1:
        raise _invalid("the checksum does not match: the file was altered")
    header = _decoded(lines[0], Header, "the file has no header")
    if header.persys_snapshot != FORMAT:
        raise _invalid(f"unsupported format {header.persys_snapshot}: expected {FORMAT}")
    decoder = msgspec.json.Decoder(tuple[str, str])
    try:
        pairs = [decoder.decode(line) for line in lines[1:]]
    except msgspec.DecodeError as err:
        raise _invalid(f"a record cannot be read: {err}") from err
    return Contents(header, [(key, value.encode()) for key, value in pairs])


def is_text(value: bytes) -> bool:
    """Whether a file can contain this value. A damaged value that is not UTF-8 cannot be read anyway."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def count(keys: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key in keys:
        kind = key.split("/", 2)[1]
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def _lines(header: Header, records: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    digest = hashlib.sha256()
    total = 0
    first = encoder.encode(header) + b"\n"
    digest.update(first)
    yield first
    for key, value in records:
        total += 1
        line = encoder.encode((key, value.decode())) + b"\n"
        digest.update(line)
        yield line
    yield encoder.encode(_Footer(digest.hexdigest(), total)) + b"\n"


def _joined_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    together: list[bytes] = []
    for line in lines:
        together.append(line)
        if len(together) == _LINES_PER_BLOCK:
            yield b"".join(together)
            together = []
    yield b"".join(together)


def _decompressed_lines(chunks: Iterable[bytes]) -> list[bytes]:
    """The lines with their line ends."""
    unpack = zlib.decompressobj(_GZIP)
    plain = bytearray()
    try:
        for chunk in chunks:
            plain += unpack.decompress(chunk)
        plain += unpack.flush()
    except zlib.error as err:
        raise _invalid(f"the file is not a snapshot, or it was altered: {err}") from err
    if not unpack.eof:
        raise _invalid("the file is truncated")
    if unpack.unused_data:
        raise _invalid("the file has data after its end")
    return bytes(plain).splitlines(keepends=True)


def _decoded(line: bytes, kind: type[StructT], problem: str) -> StructT:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise _invalid(problem) from err


def _invalid(problem: str) -> InvalidError:
    return InvalidError("snapshot", problem)
