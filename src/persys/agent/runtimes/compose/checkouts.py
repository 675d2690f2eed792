"""The working directory of a Compose stack that its containers mount: the files of a commit, without `.git`.

Containers may write into it while the agent copies. So every operation uses directory descriptors and never
follows a symbolic link: an entry that a container has put in the way is replaced, and nothing outside the
directory is touched. Files that a container has created stay; files that only the previous commit had are
removed.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = ".persys-new"


def remove_escaping_links(export: Path) -> dict[str, str]:
    """Remove symbolic links that point outside the export, and return their targets by name.

    Compose must not read files outside the export. Raises OSError.
    """
    base, removed = export.resolve(), {}
    for parent, directories, files in os.walk(export):
        for name in (*directories, *files):
            path = Path(parent, name)
            if path.is_symlink() and not _leads_inside(path, base):
                removed[path.relative_to(export).as_posix()] = str(path.readlink())
                path.unlink()
    return removed


def names_in(export: Path, links: Mapping[str, str]) -> frozenset[str]:
    """The files of the export and the links that were removed from it. Raises OSError."""
    files = {
        path.relative_to(export).as_posix()
        for path in export.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    return frozenset(files | links.keys())


def copy_files(
    export: Path, to: Path, *, links: Mapping[str, str], previous: frozenset[str]
) -> None:
    """Update `to` with the files of `export` and the links that were removed from it. Raises OSError.

    Those of `previous` that the export does not have are removed.
    """
    to.mkdir(mode=0o755, parents=True, exist_ok=True)
    if (to / ".git").exists():
        shutil.rmtree(to / ".git")
    names = names_in(export, links)
    with _opened(to, None) as target:
        for path in sorted(export.rglob("*")):
            _copy(path, path.relative_to(export).parts, target)
        for name, leads_to in links.items():
            with _descend(Path(name).parts[:-1], target, make=True) as parent:
                assert parent is not None, "missing directories are created"
                _link(leads_to, Path(name).name, parent)
        for name in sorted(previous - names):
            _remove(Path(name).parts, target)


def _leads_inside(link: Path, base: Path) -> bool:
    try:
        return link.resolve().is_relative_to(base)
    except (OSError, RuntimeError):  # a symlink loop
        return False


def _copy(source: Path, parts: tuple[str, ...], target: int) -> None:
    with _descend(parts[:-1], target, make=True) as parent:
        assert parent is not None, "missing directories are created"
        name, found = parts[-1], source.lstat()
        if stat.S_ISDIR(found.st_mode):
            with _descend((name,), parent, make=True):
                return
        if stat.S_ISLNK(found.st_mode):
            _link(str(source.readlink()), name, parent)
        else:
            with suppress(FileNotFoundError):
                _clear(_PART, parent)
            _write(source, parent, stat.S_IMODE(found.st_mode))
            _rename_into_place(name, parent)


def _link(leads_to: str, name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        _clear(_PART, parent)
    os.symlink(leads_to, _PART, dir_fd=parent)
    _rename_into_place(name, parent)


def _rename_into_place(name: str, parent: int) -> None:
    if _is_directory(name, parent):
        _clear(name, parent)
    os.rename(_PART, name, src_dir_fd=parent, dst_dir_fd=parent)


def _write(source: Path, parent: int, mode: int) -> None:
    with source.open("rb") as content:
        descriptor = os.open(_PART, _NEW, 0o600, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as copy:
            shutil.copyfileobj(content, copy)
            os.fchmod(descriptor, mode)


def _remove(parts: tuple[str, ...], target: int) -> None:
    with _descend(parts[:-1], target, make=False) as parent:
        if parent is not None and not _is_directory(parts[-1], parent):
            with suppress(FileNotFoundError):
                os.unlink(parts[-1], dir_fd=parent)


@contextmanager
def _descend(parts: tuple[str, ...], start: int, *, make: bool) -> Iterator[int | None]:
    """A descriptor of the directory. None: it does not exist, and `make` is False."""
    current = os.dup(start)
    try:
        for name in parts:
            if not _is_directory(name, current):
                if not make:
                    yield None
                    return
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=current)
                os.mkdir(name, 0o755, dir_fd=current)
            following = os.open(name, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


@contextmanager
def _opened(path: Path, dir_fd: int | None) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_directory(name: str, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _clear(name: str, parent: int) -> None:
    if _is_directory(name, parent):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
