"""The SQLite file of the gateway (audit log, webhook queue), accessed from one dedicated thread."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from persys.errors import SettingsError, StoreUnavailableError

T = TypeVar("T")

Connection = sqlite3.Connection

MEMORY = "memory"  # instead of a path: an in-memory database


class Database:
    def __init__(self, where: str) -> None:
        """Open or create the file. Raises SettingsError."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        try:
            self._connection = _open(where)
        except (sqlite3.Error, OSError) as err:
            raise SettingsError(f"PERSYS_GATEWAY_AUDIT_DB={where}: {err}") from err

    def prepare(self, tables: str) -> None:
        """Create missing tables. Only during start-up."""
        self._connection.executescript(tables)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on the calling thread. Only during start-up. Raises StoreUnavailableError."""
        return self._do(work)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` as one transaction on the database thread. Raises StoreUnavailableError."""
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
    connection.execute("PRAGMA synchronous = FULL")  # acknowledged writes survive a power failure
    return connection
