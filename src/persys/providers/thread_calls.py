"""Calls of blocking client libraries, in the threads of one provider and with a deadline.

A call cannot be stopped. One that exceeds its deadline continues in its thread until the time limits of the
library end it; its outcome is unknown. While all threads are blocked, further calls fail at their deadline.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from persys.errors import ProviderUnavailableError

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0  # between two bytes of a response
LIST_SECONDS = 120.0
CHANGE_SECONDS = 300.0  # some libraries wait for the completion of an operation

Result = TypeVar("Result")


class ThreadCalls:
    def __init__(self, provider: str, *, threads_max: int) -> None:
        """`threads_max` is 1 for a library that is not thread-safe."""
        self._provider = provider
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=provider)

    async def run(self, call: Callable[[], Result], *, deadline_seconds: float) -> Result:
        """Passes on the exceptions of the call, and raises ProviderUnavailableError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_seconds):
                return await loop.run_in_executor(self._executor, call)
        except TimeoutError as err:
            raise ProviderUnavailableError(
                f"provider '{self._provider}' did not respond within {deadline_seconds:g} s"
            ) from err

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
