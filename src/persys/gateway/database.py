"""What a gateway has to know again after a restart: one SQLite file, on a thread of its own."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from persys.errors import SettingsError, StoreUnavailableError

T = TypeVar("T")

Connection = sqlite3.Connection

MEMORY = "memory"  # instead of a path: nothing outlives the process


class Database:
    def __init__(self, where: str) -> None:
        """Raises SettingsError for a file that cannot be used."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        try:
            self._connection = _open(where)
        except (sqlite3.Error, OSError) as err:
            raise SettingsError(f"PERSYS_GATEWAY_AUDIT_DB={where}: {err}") from err

    def prepare(self, tables: str) -> None:
        """At the start: what is not there yet."""
        self._connection.executescript(tables)

    def read(self, work: Callable[[Connection], T]) -> T:
        """At the start, before anything runs. Raises StoreUnavailableError."""
        return self._do(work)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """`work` is one transaction, on the thread. Raises StoreUnavailableError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    def _do(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._connection:
                return work(self._connection)
        except sqlite3.Error as err:
            raise StoreUnavailableError(str(err)) from err


def _open(where: str) -> Connection:
    if where == MEMORY:
        return sqlite3.connect(":memory:", check_same_thread=False)
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # what was answered has to outlive the power
    return connection
