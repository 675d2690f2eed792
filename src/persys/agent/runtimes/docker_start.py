"""Starting a container, also one whose start Docker has lost.

A Docker that is stopped while it starts a container may leave the container's shim behind, with nothing in
it. From then on it refuses every start, its own ones too: the task "already exists". When the shim ends,
containerd tidies up after it, and the same container starts again.
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
# The latter while containerd tidies up.
_LOST = re.compile(r"(?:task |mkdir \S+/)(?P<id>[0-9a-f]{64}): (?:already|file) exists")


async def start_container(
    engine: Engine, paths: PathCalls, container_id: str, deed: str = "start"
) -> None:
    """`deed`: or unpause. Raises EngineError."""
    for attempt in range(AGAIN_MAX):
        if attempt:
            await asyncio.sleep(AGAIN_SECONDS)
        try:
            await engine.call(
                "POST", f"containers/{container_id}/{deed}", deadline=START_DEADLINE_SECONDS
            )
            return
        except EngineError as err:
            if not await end_lost(paths, err.message) or attempt == AGAIN_MAX - 1:
                raise


async def end_lost(paths: PathCalls, text: str) -> bool:
    """Whether Docker says that it has lost a start. What stands in its way is ended, if it is found here."""
    found = _LOST.search(text)
    if found is not None and await paths.run("/proc", partial(_end_shim, found["id"])):
        log.warning("container.lost_start_ended", container_id=found["id"])
    return found is not None


def _end_shim(container_id: str) -> bool:
    ended = False
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        named = Path(words[0]).name.startswith("containerd-shim")
        if named and f"-id {container_id} " in f"{' '.join(words)} ":
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(file.parent.name), signal.SIGKILL)
                ended = True
    return ended
