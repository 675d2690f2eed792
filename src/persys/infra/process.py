"""The outermost frame of a process: run its parts until a signal or the first failure."""

import asyncio
import ctypes
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine

import structlog
import uvloop

from persys.errors import PersysError
from persys.infra.gc_tuning import settle_memory

log = structlog.get_logger()

_PR_SET_DUMPABLE = 4


def run(main: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> int:
    """Run `main` with an event that SIGTERM and SIGINT set. Returns the exit code."""
    settle_memory()  # what was imported
    _allow_many_connections()
    _forbid_core_dumps()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signalled(main))
    except PersysError as err:
        return _report(err)
    except ExceptionGroup as group:
        expected, unexpected = group.split(PersysError)
        if unexpected is not None:
            log.error("process.crashed", exc_info=unexpected)
            return 1
        assert expected is not None
        return _report(_leaf(expected))
    return 0


async def serve(parts: dict[str, Callable[[], Awaitable[None]]], stop: asyncio.Event) -> None:
    """Run all parts until `stop` is set. The first failure ends them all."""
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(_named(run_part), name=name) for name, run_part in parts.items()
        ]
        await stop.wait()
        for part in running:
            part.cancel()


def _allow_many_connections() -> None:
    """Raise the limit of open files: idle connections would use up the default of 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _forbid_core_dumps() -> None:
    """Memory contains secrets and keys. Child processes inherit the limit."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A piped core handler ignores the limit, so the process is made undumpable too.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


async def _named(part: Callable[[], Awaitable[None]]) -> None:
    await part()


async def _until_signalled(main: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await main(stop)


def _leaf(group: BaseExceptionGroup[PersysError]) -> PersysError:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first


def _report(err: PersysError) -> int:
    print(f"error: {err}", file=sys.stderr)
    return 1
