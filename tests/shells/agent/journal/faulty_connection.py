"""An SQLite connection with injected faults, for the journal."""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

# Errors of SQLite and of the kernel for disks, and unexpected ones.
FAULTS: dict[str, Callable[[], Exception]] = {
    "full": lambda: sqlite3.OperationalError("database or disk is full"),
    "locked": lambda: sqlite3.OperationalError("database is locked"),
    "io": lambda: sqlite3.OperationalError("disk I/O error"),
    "malformed": lambda: sqlite3.DatabaseError("database disk image is malformed"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "EIO": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "RuntimeError": lambda: RuntimeError("not expected"),
    "ValueError": lambda: ValueError("not expected"),
    "MemoryError": MemoryError,
}
HANG = "hang"


class FaultyConnection:
    """`matches` decides by the text of each statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fault = "full"
        self.matches: Callable[[str], bool] = lambda _sql: False
        self.struck = 0
        self.answers = threading.Event()
        self.answers.set()

    def fail(self, fault: str, matches: Callable[[str], bool]) -> None:
        self.fault = fault
        if fault == HANG:
            self.answers.clear()
        self.matches = matches

    def restore(self) -> None:
        self.matches = lambda _sql: False
        self.answers.set()

    def check(self, sql: str) -> None:
        if self.matches(sql):
            self.struck += 1
            if self.fault == HANG:
                self.answers.wait()
            else:
                raise FAULTS[self.fault]()

    def cursor(self) -> "FaultyCursor":
        return FaultyCursor(self, self._connection.cursor())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class FaultyCursor:
    def __init__(self, connection: FaultyConnection, cursor: sqlite3.Cursor) -> None:
        self._connection = connection
        self._cursor = cursor

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        self._connection.check(sql)
        return self._cursor.execute(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        self._connection.check(sql)
        return self._cursor.executemany(sql, rows)
