"""Starts containers only with the host paths that the node policy allows, and verifies the mounts afterwards.

The bind sources are opened before the start and compared with the container's mount table after it. A
container with a different mount is removed, so that Docker cannot restart it, and its workload fails.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial

import structlog

from persys.agent.runtimes.docker.engine import Engine, EngineError, parsing_response
from persys.agent.runtimes.host_paths import (
    HeldBind,
    HostBind,
    HostPathError,
    hold,
    replaced_source,
)
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model.status import Failure, FailureReason

log = structlog.get_logger()


class BindGuard:
    def __init__(self, engine: Engine, paths: PathCalls) -> None:
        self._engine = engine
        self._paths = paths

    async def check(self, binds: Sequence[HostBind]) -> Failure | None:
        """Check that every source can be opened. Returns None if so."""
        try:
            async with self._held(binds):
                return None
        except HostPathError as err:
            return err.failure
        except PathTimeoutError as err:
            return _timeout_failure(err)

    async def start(
        self,
        binds: Sequence[HostBind],
        start: Callable[[], Awaitable[Failure | None]],
        containers: Callable[[], Awaitable[Iterable[str]]],
    ) -> Failure | None:
        """Run `start` while the sources are open, then verify the mounts of `containers`."""
        if not binds:
            return await start()
        try:
            async with self._held(binds) as held:
                failure = await start()
                for container_id in await containers():
                    if replaced := await self._replaced(container_id, held):
                        return replaced
                return failure
        except HostPathError as err:
            return err.failure
        except PathTimeoutError as err:
            return _timeout_failure(err)

    @asynccontextmanager
    async def _held(self, binds: Sequence[HostBind]) -> AsyncIterator[list[HeldBind]]:
        """Hold the sources open. Raises HostPathError, PathTimeoutError."""
        with ExitStack() as stack:
            held = []
            for bind in binds:
                one = await self._paths.run(
                    bind.source, partial(hold, bind), discard=HeldBind.close
                )
                stack.callback(one.close)
                held.append(one)
            yield held

    async def _replaced(self, container_id: str, held: Sequence[HeldBind]) -> Failure | None:
        try:
            found = await self._engine.call("GET", f"containers/{container_id}/json")
        except EngineError:
            return None  # it was removed
        with parsing_response(container_id):
            pid = int(found["State"]["Pid"])
            targets = {str(mount["Destination"]) for mount in found["Mounts"]}
        mounted = [one for one in held if one.bind.target in targets]
        if not pid or not mounted:
            return None
        problem = await self._paths.run(f"/proc/{pid}", partial(replaced_source, mounted, pid))
        if not problem:
            return None
        log.error("bind.replaced", container_id=container_id, problem=problem)
        with suppress(EngineError):
            force = {"force": "true"}
            await self._engine.call("DELETE", f"containers/{container_id}", params=force)
        reason = FailureReason.INVALID_SPEC
        return Failure(reason, problem, retryable=False, code="BindSourceReplaced")


def _timeout_failure(err: PathTimeoutError) -> Failure:
    return Failure(FailureReason.STORAGE_ERROR, str(err), code="HostPath")
