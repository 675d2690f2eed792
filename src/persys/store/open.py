"""Opening the store that PERSYS_STORE names.

A scheduler that is moved to an empty etcd while a SQLite file still holds its cluster does not start.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from persys.errors import SettingsError, StoreUnavailableError
from persys.store import keys
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Store
from persys.store.sqlite import SqliteStore, holds_key

log = structlog.get_logger()

ETCD = "etcd"
_STATE = Path("/var/lib/persys")
# Where a scheduler keeps its SQLite file by default, by itself and under systemd.
SQLITE_FILES = (_STATE / "scheduler.db", _STATE / "scheduler" / "scheduler.db")
_SECRETS_KEY = "secrets.key"
_EMPTY_RETRY_SECONDS = 2.0


async def open_store(url: str, *, etcd: EtcdOptions, monotonic: Callable[[], float]) -> Store:
    """`sqlite:/path`, an absolute path, or `etcd`, which uses the options."""
    if url == ETCD:
        return await EtcdStore.open(etcd)
    path = url.removeprefix("sqlite:")
    if path and (path != url or url.startswith("/")):
        return await SqliteStore.open(Path(path), monotonic=monotonic)
    raise SettingsError(
        f"PERSYS_STORE={url!r}: expected sqlite:/path/of/a/file, /path/of/a/file or etcd"
    )


async def refuse_second_cluster(
    store: Store,
    *,
    files: Sequence[Path] = SQLITE_FILES,
    retry_seconds: float = _EMPTY_RETRY_SECONDS,
) -> None:
    """Before a scheduler begins on etcd: raises SettingsError if that is empty and a file holds a cluster.

    Waits for etcd to answer if there is such a file, because an etcd that does not answer may be empty.
    """
    for file in files:
        if not await asyncio.to_thread(holds_key, file, keys.CLUSTER):
            continue
        if await _is_empty(store, file, retry_seconds):
            raise SettingsError(
                f"etcd is empty, and {file} holds a cluster. To migrate it, start a scheduler with "
                f"PERSYS_STORE=sqlite:{file}, run `persysctl snapshot save FILE`, stop it, rename "
                f"{file}, start on etcd and run `persysctl snapshot restore FILE`. To begin a new "
                f"cluster, rename {file}"
            )


async def _is_empty(store: Store, file: Path, retry_seconds: float) -> bool:
    is_told = False
    while True:
        try:
            return await store.get(keys.CLUSTER) is None
        except StoreUnavailableError as err:
            if not is_told:
                log.warning("store.awaited", reason=str(err), file=str(file))
                is_told = True
            await asyncio.sleep(retry_seconds)


def file_bytes(url: str) -> Callable[[], int] | None:
    """Says how large the store's file is, with the log beside it. None: the store is not a file."""
    if url == ETCD:
        return None
    path = Path(url.removeprefix("sqlite:"))
    return lambda: sum(_size(part) for part in (path, path.with_name(f"{path.name}-wal")))


def secrets_key_path(url: str, said: str) -> Path:
    """Where the key of secrets is, unless somebody said so: beside the store, if that is a file."""
    if said:
        return Path(said)
    if url == ETCD:
        return _STATE / _SECRETS_KEY
    return Path(url.removeprefix("sqlite:")).with_name(_SECRETS_KEY)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
