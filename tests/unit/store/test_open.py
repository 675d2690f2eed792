"""PERSYS_STORE chooses the adapter, or the process does not start."""

from pathlib import Path

import pytest

from persys.errors import SettingsError
from persys.infra.clock import SystemClock
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.open import open_store
from persys.store.port import Store
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
