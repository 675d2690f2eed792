"""Sends SIGHUP to an exec process when its client disconnects, as a terminal does.

Docker has no API call for it and lets the process run. The signal is sent only if /proc shows that the
process belongs to the container: with a remote Docker the pid is not valid on this host.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from persys.agent.runtimes.docker_engine import Engine, EngineError, understood
from persys.errors import RuntimeUnavailableError

_DEADLINE_SECONDS = 5.0


async def hang_up(engine: Engine, exec_id: str, container_id: str) -> None:
    try:
        found = await engine.call("GET", f"exec/{exec_id}/json", deadline=_DEADLINE_SECONDS)
    except (EngineError, RuntimeUnavailableError):
        return
    with suppress(RuntimeUnavailableError), understood("a command"):
        pid = int(found["Pid"] or 0) if found["Running"] else 0
        if pid and _is_inside(pid, container_id):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGHUP)


def _is_inside(pid: int, container_id: str) -> bool:
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
