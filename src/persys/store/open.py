"""Which store PERSYS_STORE names."""

from collections.abc import Callable
from pathlib import Path

from persys.errors import SettingsError
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Store
from persys.store.sqlite import SqliteStore

_STATE = Path("/var/lib/persys")
_SECRETS_KEY = "secrets.key"


async def open_store(url: str, *, etcd: EtcdOptions, monotonic: Callable[[], float]) -> Store:
    """`sqlite:/path`, an absolute path, or `etcd`, which uses the options."""
    if url == "etcd":
        return await EtcdStore.open(etcd)
    path = url.removeprefix("sqlite:")
    if path and (path != url or url.startswith("/")):
        return await SqliteStore.open(Path(path), monotonic=monotonic)
    raise SettingsError(
        f"PERSYS_STORE={url!r}: expected sqlite:/path/of/a/file, /path/of/a/file or etcd"
    )


def file_bytes(url: str) -> Callable[[], int] | None:
    """Says how large the store's file is, with the log beside it. None: the store is not a file."""
    if url == "etcd":
        return None
    path = Path(url.removeprefix("sqlite:"))
    return lambda: sum(_size(part) for part in (path, path.with_name(f"{path.name}-wal")))


def secrets_key_path(url: str, said: str) -> Path:
    """Where the key of secrets is, unless somebody said so: beside the store, if that is a file."""
    if said:
        return Path(said)
    if url == "etcd":
        return _STATE / _SECRETS_KEY
    return Path(url.removeprefix("sqlite:")).with_name(_SECRETS_KEY)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
