"""The file system in virtual time: real files, and calls that fail or do not return.

As with the agent's own threads, a call that does not return in time continues: it is performed when the fault
ends, although its caller has timed out.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from faults.injection import HANG, INJECTED, OVERSIZED, REFUSED, Injector
from faults.sites import PATHS
from persys.infra.aio.path_calls import DEADLINE_SECONDS, PathTimeoutError

Result = TypeVar("Result")
HUGE_BYTES = 8_000_000
HUGE_COUNT = 200_000


class VirtualPathCalls:
    """Implements PathCalls."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self.late: list[Callable[[], object]] = []
        # Replacements for tables of the kernel, by the name of the function that reads them.
        self.tables: dict[str, Callable[..., Any]] = {}

    async def run(
        self,
        path: Path | str,
        call: Callable[[], Result],
        *,
        deadline_seconds: float | None = None,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        kind = self._injector.fault_of(PATHS, path)
        if kind and getattr(call, "__name__", "") == "close":
            call()  # the kernel closes a file even if it reports an error
        self._injector.raise_if(kind)
        if kind == REFUSED:
            raise PermissionError(13, f"Permission denied ({INJECTED})", str(path))
        if kind == HANG:
            seconds = DEADLINE_SECONDS if deadline_seconds is None else deadline_seconds
            await self._hang(str(path), seconds, call, discard)
        result = self._perform(call)
        if kind == OVERSIZED:
            larger: Result = oversized(result)
            return larger
        if discard is not None and kind:
            discard(result)
        self._injector.raise_afterwards_if(kind)
        return result

    def release(self) -> None:
        """Let the blocked threads return."""
        late, self.late = self.late, []
        for call in late:
            call()

    def _perform(self, call: Callable[[], Result]) -> Result:
        function = getattr(call, "func", call)
        table = self.tables.get(getattr(function, "__name__", ""))
        if table is None:
            return call()
        response: Result = table(*getattr(call, "args", ()))
        return response

    async def _hang(
        self,
        path: str,
        seconds: float,
        call: Callable[[], Result],
        discard: Callable[[Result], object] | None,
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._injector.mended.wait()
        except TimeoutError as err:
            self.late.append(lambda: _late(call, discard))
            raise PathTimeoutError(f"{path}: no answer within {seconds:g} s") from err


def _late(call: Callable[[], Result], discard: Callable[[Result], object] | None) -> None:
    """Its errors are ignored."""
    try:
        result = call()
    except Exception:  # noqa: BLE001  # as in a thread
        return
    if discard is not None:
        discard(result)


def oversized(result: Any) -> Any:
    """A value of the same type, far larger than expected."""
    match result:
        case bool():
            return result
        case str():
            return "x" * HUGE_BYTES
        case bytes():
            return b"x" * HUGE_BYTES
        case int():
            return 1 << 62
        case list() if result:
            return [result[0]] * HUGE_COUNT
        case _:
            return result
