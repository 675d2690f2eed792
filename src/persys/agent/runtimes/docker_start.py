"""Starts a container, also after Docker lost an earlier start.

If Docker is stopped while it starts a container, the container's shim can remain without a process. Docker
then rejects every start, also its own: the task "already exists". When the shim is killed, containerd cleans
up and the container can start again.
"""

import asyncio
import os
import re
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from persys.agent.runtimes.docker_engine import Engine, EngineError
from persys.infra.aio.path_calls import PathCalls

log = structlog.get_logger()

START_DEADLINE_SECONDS = 60.0
AGAIN_SECONDS = 0.1
AGAIN_MAX = 50
# The mkdir form appears while containerd cleans up.
_LOST = re.compile(r"(?:task |mkdir \S+/)(?P<id>[0-9a-f]{64}): (?:already|file) exists")


async def start_container(
    engine: Engine, paths: PathCalls, container_id: str, verb: str = "start"
) -> None:
    """`verb`: "start" or "unpause". Raises EngineError."""
    for attempt in range(AGAIN_MAX):
        if attempt:
            await asyncio.sleep(AGAIN_SECONDS)
        try:
            await engine.call(
                "POST", f"containers/{container_id}/{verb}", deadline=START_DEADLINE_SECONDS
            )
            return
        except EngineError as err:
            if not await end_lost(paths, err.message) or attempt == AGAIN_MAX - 1:
                raise


async def end_lost(paths: PathCalls, text: str) -> bool:
    """Whether the error text reports a lost start. The stale shim is killed if it runs on this host."""
    found = _LOST.search(text)
    if found is not None and await paths.run("/proc", partial(_end_shim, found["id"])):
        log.warning("container.lost_start_ended", container_id=found["id"])
    return found is not None


def _end_shim(container_id: str) -> bool:
    ended = False
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended
            continue
        named = Path(words[0]).name.startswith("containerd-shim")
        if named and f"-id {container_id} " in f"{' '.join(words)} ":
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(file.parent.name), signal.SIGKILL)
                ended = True
    return ended
