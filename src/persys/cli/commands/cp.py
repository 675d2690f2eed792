"""`persysctl cp`: copy files and directories to or from a container.

Files travel as a tar archive that is never held as a whole. What a container sends is not trusted: entries
that lead out of the destination, and special files, are not extracted.
"""

import gc
import os
import re
import sys
import tarfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from persys.cli.commands.lookup import of_one_workload
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import UsageError
from persys.cli.framework.output import format_bytes
from persys.cli.framework.terminal import unfiltered
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import CopyInput, CopyOutput, CopyStart

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_STDIO = "-"
_CHUNK_BYTES = 64 * 1024
_PROGRESS_BYTES = 1024 * 1024
_PERMISSIONS = 0o777
_REMOTE = re.compile(r"([^/:]+)(?:/([^/:]+))?:(.*)", re.DOTALL)


class Remote(NamedTuple):
    workload_id: str
    service: str
    path: str


def run(options: Namespace) -> int:
    gc.enable()
    source, target = parse_remote(options.source), parse_remote(options.target)
    if (source is None) == (target is None):
        raise UsageError(
            "expected a path of a workload on one side: WORKLOAD:/PATH or WORKLOAD/SERVICE:/PATH"
        )
    remote = source or target
    assert remote is not None
    with scheduler_client(options) as client, of_one_workload(client, remote.workload_id):
        if target is not None:
            return _upload(client, options.source, target)
        return _download(client, remote, options.target)


def parse_remote(text: str) -> Remote | None:
    """None for a local path. A local path with a colon is written with a leading ./ or /."""
    found = _REMOTE.fullmatch(text)
    if found is None or text.startswith((".", "/")):
        return None
    workload_id, service, path = found[1], found[2] or "", found[3]
    if not path.startswith("/"):
        raise UsageError(
            f"invalid path {path!r}: expected an absolute path, for example {workload_id}:/tmp"
        )
    return Remote(workload_id, service, path)


def _upload(client: "SchedulerClient", source: str, remote: Remote) -> int:
    if source != _STDIO and not os.path.lexists(source):
        raise UsageError(f"{source}: no such file or directory")
    session = _Upload(source, remote)
    with _progress() as show:
        session.show = show
        closed = False
        try:
            for output in client.copy_files(session.inputs()):
                closed = closed or output.closed
                if not session.begun.is_set():
                    if source == _STDIO and not output.directory:
                        raise RefusedError(
                            f"{remote.path} is not a directory of the container: an archive is "
                            "extracted in a directory"
                        )
                    session.into_directory = output.directory
                    session.begun.set()
        finally:
            session.left = True
            session.begun.set()
    if session.problem:
        raise UsageError(session.problem)
    if not closed:
        raise UnavailableError("the copy ended before everything was copied")
    return 0


class _Upload:
    """The inputs of an upload. Another thread iterates over them, a further one writes the archive."""

    def __init__(self, source: str, remote: Remote) -> None:
        self._source = source
        self._remote = remote
        self.begun = Event()
        self.into_directory = False
        self.left = False
        self.problem = ""
        self.show = _no_progress

    def inputs(self) -> Iterator[CopyInput]:
        workload_id, service, path = self._remote
        yield CopyInput(
            start=CopyStart(workload_id=workload_id, service=service, path=path, upload=True)
        )
        self.begun.wait()
        if self.left:
            return
        if self._source == _STDIO:
            while data := os.read(0, _CHUNK_BYTES):
                self.show(len(data))
                yield CopyInput(data=data)
        else:
            yield from self._archive()
        if not self.problem:
            yield CopyInput(closed=True)

    def _archive(self) -> Iterator[CopyInput]:
        reader, writer = os.pipe()
        thread = Thread(target=self._write, args=(writer,), daemon=True)
        thread.start()
        try:
            while data := os.read(reader, _CHUNK_BYTES):
                self.show(len(data))
                yield CopyInput(data=data)
        finally:
            os.close(reader)  # the thread ends at its next write
        thread.join()

    def _write(self, writer: int) -> None:
        try:
            with (
                open(writer, "wb") as pipe,
                tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                archive.add(self._source, self._name(), filter=_as_root)
        except BrokenPipeError:
            pass
        except OSError as err:
            self.problem = f"{err.filename or self._source}: {err.strerror}"

    def _name(self) -> str:
        """The name in the archive, which is extracted in the directory or beside the path."""
        if not self.into_directory:
            return PurePosixPath(self._remote.path).name
        if self._source.endswith("/.") or self._source == ".":
            return "."  # the contents of the directory
        path = Path(self._source)
        return path.name if path.name not in ("", "..") else path.resolve().name


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Files of a container belong to root, as with `docker cp`: users of this machine are not known there."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _download(client: "SchedulerClient", remote: Remote, target: str) -> int:
    workload_id, service, path = remote
    start = CopyStart(workload_id=workload_id, service=service, path=path)
    if target == _STDIO and sys.stdout.isatty():
        raise UsageError("the archive is not written to a terminal: redirect the output")
    if target != _STDIO and not Path(target).absolute().parent.is_dir():
        raise UsageError(f"{Path(target).parent}: no such directory")
    with _progress() as show:
        outputs = client.copy_files(iter([CopyInput(start=start)]))
        archive = _Archive(outputs, show)
        if target == _STDIO:
            while data := archive.read(_CHUNK_BYTES):
                sys.stdout.buffer.write(data)
            sys.stdout.flush()
            return 0
        archive.begin()
        skipped = _extract(archive, target)
        archive.finish()
    for text in skipped:
        print(f"not copied: {text}", file=sys.stderr)
    return 1 if skipped else 0


class _Archive:
    """The archive as a file that is read once."""

    def __init__(self, outputs: Iterator[CopyOutput], show: "Show") -> None:
        self._outputs = outputs
        self._show = show
        self._data = b""
        self._closed = False

    def begin(self) -> None:
        """Wait for the first message, so that a refusal comes before anything is created."""
        next(self._outputs, None)

    def read(self, size: int) -> bytes:
        """Fewer bytes than `size` only at the end. Raises UnavailableError if it is incomplete."""
        parts, missing = [], size
        while missing:
            if not self._data and not self._receive():
                break
            part, self._data = self._data[:missing], self._data[missing:]
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def finish(self) -> None:
        while self.read(_CHUNK_BYTES):
            pass

    def _receive(self) -> bool:
        while not self._data and not self._closed:
            output = next(self._outputs, None)
            if output is None:
                raise UnavailableError("the copy ended before everything was copied")
            self._data, self._closed = output.data, output.closed
            self._show(len(output.data))
        return bool(self._data)


def _extract(archive: _Archive, target: str) -> list[str]:
    """Extract into an existing directory, else rename the first entry. Returns what was skipped."""
    place = Path(target).absolute()
    root, renamed = (place, "") if place.is_dir() else (place.parent, place.name)
    skipped: list[str] = []
    directories: list[tuple[Path, int]] = []
    first = ""
    try:
        # tarfile needs only read() of a stream.
        with tarfile.open(fileobj=cast("IO[bytes]", archive), mode="r|") as entries:
            for entry in entries:
                first = first or entry.name.strip("/").partition("/")[0]
                if renamed:
                    entry.name = _renamed(entry.name, first, renamed)
                    if entry.islnk():
                        entry.linkname = _renamed(entry.linkname, first, renamed)
                try:
                    entries.extract(entry, root, filter=_safe)
                except tarfile.FilterError as err:
                    skipped.append(str(err))
                    continue
                if entry.isdir():
                    directories.append((root / entry.name.lstrip("/"), entry.mode & _PERMISSIONS))
        for path, mode in reversed(directories):
            if not path.is_symlink():
                path.chmod(mode)
    except tarfile.TarError as err:
        raise UnavailableError(f"the archive of the container cannot be read: {err}") from err
    except OSError as err:
        raise UsageError(f"{err.filename or target}: {err.strerror}") from err
    return skipped


def _renamed(name: str, first: str, new: str) -> str:
    top, slash, rest = name.strip("/").partition("/")
    return f"{new}{slash}{rest}" if top == first else name


def _safe(entry: tarfile.TarInfo, root: str) -> tarfile.TarInfo | None:
    """tarfile's data filter, with the permissions of files. Directories stay writable until the end."""
    checked = tarfile.data_filter(entry, root)
    if checked is None or not (checked.isfile() or checked.isdir()):
        return checked
    mode = entry.mode & _PERMISSIONS
    return checked.replace(mode=mode | 0o700 if checked.isdir() else mode, deep=False)


class Show:
    """A line with the amount so far, on a terminal."""

    def __init__(self) -> None:
        self._count = 0
        self._shown = 0

    def __call__(self, count: int) -> None:
        self._count += count
        if self._count - self._shown >= _PROGRESS_BYTES:
            self._shown = self._count
            print(
                f"\r{format_bytes(self._count)} copied",
                end="",
                file=unfiltered(sys.stderr),
                flush=True,
            )

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=unfiltered(sys.stderr), flush=True)


class _NoShow(Show):
    def __call__(self, count: int) -> None:
        pass


_no_progress: Show = _NoShow()


@contextmanager
def _progress() -> Iterator[Show]:
    show = Show() if sys.stderr.isatty() else _no_progress
    try:
        yield show
    finally:
        with suppress(OSError):
            show.clear()
