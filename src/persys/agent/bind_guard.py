"""Starts containers only with the host paths that the node policy allows, and proves it afterwards.

The sources are opened before the start and compared with the container's mount table after it. A container
that has something else mounted is removed, so that Docker cannot start it again, and its workload fails.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing, suppress

import structlog

from persys.agent.host_paths import HeldBind, HeldBinds, HostBind, HostPathError, swapped
from persys.agent.runtimes.docker_engine import Engine, EngineError
from persys.model.failure import Failure, FailureReason

log = structlog.get_logger()

OPEN_DEADLINE_SECONDS = 20.0  # a network file system may never answer


class BindGuard:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def check(self, binds: Sequence[HostBind]) -> Failure | None:
        """Whether every source can be opened now."""
        held = await _hold(binds)
        if isinstance(held, Failure):
            return held
        held.close()
        return None

    async def start(
        self,
        binds: Sequence[HostBind],
        start: Callable[[], Awaitable[Failure | None]],
        containers: Callable[[], Awaitable[Iterable[str]]],
    ) -> Failure | None:
        """Run `start` while the sources are held open, then look at what `containers` have mounted."""
        if not binds:
            return await start()
        held = await _hold(binds)
        if isinstance(held, Failure):
            return held
        with closing(held):
            failure = await start()
            for container_id in await containers():
                if replaced := await self._replaced(container_id, held.binds):
                    return replaced
            return failure

    async def _replaced(self, container_id: str, held: Sequence[HeldBind]) -> Failure | None:
        try:
            found = await self._engine.call("GET", f"containers/{container_id}/json")
        except EngineError:
            return None  # it was removed
        pid = int(found["State"]["Pid"])
        targets = {str(mount["Destination"]) for mount in found["Mounts"]}
        mine = [one for one in held if one.bind.target in targets]
        problem = await asyncio.to_thread(swapped, mine, pid) if pid and mine else ""
        if not problem:
            return None
        log.error("bind.replaced", container_id=container_id, problem=problem)
        with suppress(EngineError):
            force = {"force": "true"}
            await self._engine.call("DELETE", f"containers/{container_id}", params=force)
        reason = FailureReason.INVALID_SPEC
        return Failure(reason, problem, retryable=False, code="BindSourceReplaced")


async def _hold(binds: Sequence[HostBind]) -> HeldBinds | Failure:
    """Opened by a thread of its own: one that hangs in a dead file system takes no place of others."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[HeldBinds | Failure] = loop.create_future()

    def tell(answer: HeldBinds | Failure) -> None:
        if not opened.done():
            opened.set_result(answer)
        elif isinstance(answer, HeldBinds):
            answer.close()

    def work() -> None:
        answer: HeldBinds | Failure
        try:
            answer = HeldBinds(binds)
        except HostPathError as err:
            answer = err.failure
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, answer)

    threading.Thread(target=work, name="bind-sources", daemon=True).start()
    try:
        async with asyncio.timeout(OPEN_DEADLINE_SECONDS):
            return await opened
    except TimeoutError:
        paths = ", ".join(bind.source for bind in binds)
        text = f"{paths}: the file system did not answer within {OPEN_DEADLINE_SECONDS:.0f} s"
        return Failure(FailureReason.STORAGE_ERROR, text, code="HostPath")
