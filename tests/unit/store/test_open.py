"""PERSYS_STORE chooses the adapter, or the process does not start."""

from pathlib import Path

import pytest

from persys.errors import SettingsError, StoreUnavailableError
from persys.infra.clock import SystemClock
from persys.store import keys
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.memory import MemoryStore
from persys.store.open import open_store, refuse_second_cluster
from persys.store.port import Record, Store, Unit
from persys.store.sqlite import SqliteStore


async def opened(url: str) -> Store:
    return await open_store(url, etcd=EtcdOptions(), monotonic=SystemClock().monotonic)


@pytest.mark.parametrize("scheme", ["sqlite:", ""])
async def test_a_path_is_a_sqlite_file(tmp_path: Path, scheme: str) -> None:
    store = await opened(f"{scheme}{tmp_path}/store.db")

    assert isinstance(store, SqliteStore)
    assert (tmp_path / "store.db").exists()
    await store.close()


async def test_etcd_needs_no_answer_to_be_opened() -> None:
    store = await opened("etcd")

    assert isinstance(store, EtcdStore)
    await store.close()


@pytest.mark.parametrize("url", ["", "sqlite:", "postgres://db", "etcd:", "relative.db", "memory"])
async def test_anything_else_is_refused_by_the_name_of_the_variable(url: str) -> None:
    with pytest.raises(SettingsError, match="PERSYS_STORE"):
        await opened(url)


async def a_file_with_a_cluster(path: Path) -> Path:
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    await store.commit([Unit(puts={keys.CLUSTER: b"{}"})])
    await store.close()
    return path


async def test_an_empty_etcd_is_refused_while_a_file_holds_the_cluster(tmp_path: Path) -> None:
    file = await a_file_with_a_cluster(tmp_path / "scheduler.db")
    store = MemoryStore(SystemClock().monotonic)

    with pytest.raises(SettingsError, match="persysctl snapshot save"):
        await refuse_second_cluster(store, files=[tmp_path / "none.db", file])


async def test_an_etcd_that_holds_a_cluster_is_accepted_beside_a_file(tmp_path: Path) -> None:
    file = await a_file_with_a_cluster(tmp_path / "scheduler.db")
    store = MemoryStore(SystemClock().monotonic)
    await store.commit([Unit(puts={keys.CLUSTER: b"{}"})])

    await refuse_second_cluster(store, files=[file])


async def test_an_empty_etcd_is_accepted_beside_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.db"
    await (await SqliteStore.open(file, monotonic=SystemClock().monotonic)).close()

    await refuse_second_cluster(MemoryStore(SystemClock().monotonic), files=[file])


async def test_a_file_that_cannot_be_read_may_hold_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.db"
    file.write_bytes(b"not a database" * 100)

    with pytest.raises(SettingsError, match="may hold a cluster"):
        await refuse_second_cluster(MemoryStore(SystemClock().monotonic), files=[file])


class LateStore(MemoryStore):
    """Does not respond at first."""

    silent = 3

    async def get(self, key: str) -> Record | None:
        if self.silent:
            self.silent -= 1
            raise StoreUnavailableError("no answer")
        return await super().get(key)


async def test_an_etcd_that_does_not_answer_is_awaited_while_a_file_holds_the_cluster(
    tmp_path: Path,
) -> None:
    file = await a_file_with_a_cluster(tmp_path / "scheduler.db")

    with pytest.raises(SettingsError, match="etcd is empty"):
        await refuse_second_cluster(
            LateStore(SystemClock().monotonic), files=[file], retry_seconds=0.01
        )
