"""Opens the store of PERSYS_STORE.

A scheduler does not start on an empty etcd while a SQLite file holds a cluster.
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
# The default paths of the SQLite file, without and with systemd.
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
        f"invalid PERSYS_STORE {url!r}: expected sqlite:/path/to/file, /path/to/file or etcd"
    )


async def refuse_second_cluster(
    store: Store,
    *,
    files: Sequence[Path] = SQLITE_FILES,
    retry_seconds: float = _EMPTY_RETRY_SECONDS,
) -> None:
    """Raises SettingsError if etcd is empty and a SQLite file holds a cluster.

    If there is such a file, waits for etcd to respond, because an unreachable etcd may be empty.
    """
    for file in files:
        if not await asyncio.to_thread(holds_key, file, keys.CLUSTER):
            continue
        if await _is_empty(store, file, retry_seconds):
            raise SettingsError(
                f"etcd is empty, and {file} holds a cluster. To migrate it, start a scheduler with "
                f"PERSYS_STORE=sqlite:{file}, run `persysctl snapshot save FILE`, stop it, rename "
                f"{file}, start on etcd and run `persysctl snapshot restore FILE`. To create a new "
                f"cluster, rename {file}"
            )


async def _is_empty(store: Store, file: Path, retry_seconds: float) -> bool:
    is_logged = False
    while True:
        try:
            return await store.get(keys.CLUSTER) is None
        except StoreUnavailableError as err:
            if not is_logged:
                log.warning("store.awaited", reason=str(err), file=str(file))
                is_logged = True
            await asyncio.sleep(retry_seconds)


def file_bytes(url: str) -> Callable[[], int] | None:
    """Returns a function for the size of the store's file and its WAL. None: the store is not a file."""
    if url == ETCD:
        return None
    path = Path(url.removeprefix("sqlite:"))
    return lambda: sum(_size(part) for part in (path, path.with_name(f"{path.name}-wal")))


def secrets_key_path(url: str, configured: str) -> Path:
    """The path of the secrets key: as configured, or next to the store if that is a file."""
    if configured:
        return Path(configured)
    if url == ETCD:
        return _STATE / _SECRETS_KEY
    return Path(url.removeprefix("sqlite:")).with_name(_SECRETS_KEY)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
