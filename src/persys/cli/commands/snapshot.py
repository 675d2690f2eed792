"""`persysctl snapshot`. A file is written completely or not at all; `inspect` needs no scheduler."""

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from persys.cli.commands.recovery import print_result
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import LiveState, Update, live_view
from persys.cli.framework.output import align_columns, dump, format_bytes, key_value_lines
from persys.errors import RefusedError, SettingsError
from persys.model.node import Node
from persys.model.spec import type_of
from persys.model.workload import Workload
from persys.store import keys
from persys.wire.stored import records
from persys.wire.stored.snapshot import CHUNK_BYTES_MAX, Contents, read


def save(options: Namespace) -> ExitCode:
    """Write a temporary file, verify it, then rename. Only the owner can read it: specs may hold secrets."""
    path = Path(options.file)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scheduler_client(options) as client, live_view(quiet=False, lines=False) as update:
            _write(partial, _counted_chunks(client.save_snapshot(), update, str(path)))
        contents = read(_chunks(partial))
        partial.rename(path)
        _sync(path.parent)
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
    finally:
        partial.unlink(missing_ok=True)
    print(f"saved {path}: {_counted(contents)}")
    return ExitCode.OK


def inspect(options: Namespace) -> ExitCode:
    contents = _read(Path(options.file))
    if options.output in ("json", "yaml"):
        print(dump(_to_dict(contents), options.output))
        return ExitCode.OK
    header = contents.header
    print(
        key_value_lines(
            (
                ("Cluster", header.cluster_uid),
                ("Taken", f"{header.taken_at:%Y-%m-%d %H:%M:%S} UTC, from {header.source}"),
                ("Revision", str(header.revision) if header.revision else ""),
                ("Format", str(header.persys_snapshot)),
                ("Records", _counted(contents)),
            )
        )
    )
    for title, rows in (("NODE", _nodes(contents)), ("WORKLOAD", _workloads(contents))):
        if rows:
            print()
            print(align_columns([[title, *_MORE[title]], *rows]))
    return ExitCode.OK


def restore(options: Namespace) -> ExitCode:
    path = Path(options.file)
    _read(path)  # an invalid file fails here, before any request
    size = path.stat().st_size
    with (
        scheduler_client(options, quiet=True) as client,
        live_view(quiet=False, lines=False) as update,
    ):
        answer = client.restore_snapshot(
            _counted_chunks(_chunks(path), update, str(path), size_bytes=size)
        )
    return print_result(answer, f"restored {path}")


_MORE = {"NODE": ("STATUS", "ENDPOINT"), "WORKLOAD": ("TYPE", "DESIRED", "REVISION")}


def _nodes(contents: Contents) -> list[list[str]]:
    nodes = [
        records.decode(value, Node)
        for key, value in contents.records
        if key.startswith(keys.NODES) and not keys.is_node_lease(key)
    ]
    return [[node.id, node.status, node.endpoint] for node in nodes]


def _workloads(contents: Contents) -> list[list[str]]:
    workloads = [
        records.decode(value, Workload)
        for key, value in contents.records
        if key.startswith(keys.WORKLOADS)
    ]
    return [[one.id, type_of(one.spec).value, one.desired.value, one.revision] for one in workloads]


def _to_dict(contents: Contents) -> dict[str, object]:
    header = contents.header
    return {
        "cluster_uid": header.cluster_uid,
        "taken_at": header.taken_at.isoformat(),
        "source": header.source,
        "revision": header.revision,
        "format": header.persys_snapshot,
        "counts": header.counts,
        "nodes": [row[0] for row in _nodes(contents)],
        "workloads": [row[0] for row in _workloads(contents)],
    }


def _counted(contents: Contents) -> str:
    counts = contents.header.counts
    return ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing"


def _read(path: Path) -> Contents:
    try:
        return read(_chunks(path))
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
    except RefusedError as err:
        raise RefusedError(f"{path}: {err}") from err


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES_MAX):
            yield chunk


def _counted_chunks(
    chunks: Iterator[bytes], update: Update, name: str, *, size_bytes: int = 0
) -> Iterator[bytes]:
    """The same chunks; a terminal shows the progress. `size_bytes` 0: not known."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        share = done / size_bytes if size_bytes else None
        update({name: LiveState("transferred", format_bytes(done), share, ticks=True)})


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Sync the directory, so that the rename survives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
