"""Starts a container, also after Docker lost an earlier start, and finds the reason of a failed start.

If Docker is stopped while it starts a container, the container's shim can remain without a process. Docker
then rejects every start, also its own: the task "already exists". When the shim is killed, containerd cleans
up and the container can start again.

Docker returns status 500 for a host port in use as well as for its own errors, so the ports are checked
directly.
"""

import asyncio
import errno
import os
import re
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.spec import Port
from persys.model.status import Failure, FailureReason

log = structlog.get_logger()

START_DEADLINE_SECONDS = 60.0
RETRY_SECONDS = 0.1
RETRIES_MAX = 50
# The mkdir form appears while containerd cleans up.
_LOST = re.compile(r"(?:task |mkdir \S+/)(?P<id>[0-9a-f]{64}): (?:already|file) exists")


async def start_container(
    engine: Engine, paths: PathCalls, container_id: str, verb: str = "start"
) -> None:
    """`verb`: "start" or "unpause". Raises EngineError."""
    for attempt in range(RETRIES_MAX):
        if attempt:
            await asyncio.sleep(RETRY_SECONDS)
        try:
            await engine.call(
                "POST", f"containers/{container_id}/{verb}", deadline=START_DEADLINE_SECONDS
            )
            return
        except EngineError as err:
            if not await kill_lost_shim(paths, err.message) or attempt == RETRIES_MAX - 1:
                raise


async def kill_lost_shim(paths: PathCalls, text: str) -> bool:
    """Whether the error text reports a lost start. The stale shim is killed if it runs on this host."""
    found = _LOST.search(text)
    if found is not None and await paths.run("/proc", partial(_kill_shim, found["id"])):
        log.warning("container.lost_start_ended", container_id=found["id"])
    return found is not None


def _kill_shim(container_id: str) -> bool:
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


async def port_conflict(
    engine: Engine, owner: OwnerLabels, workload_id: WorkloadId, ports: Iterable[Port]
) -> Failure | None:
    """The failure for the first port in use by another process, or None."""
    try:
        found = await engine.call("GET", "containers/json")
    except EngineError as err:
        raise as_unavailable(err) from err
    own: set[tuple[int, str]] = set()
    others: set[tuple[int, str]] = set()
    with parsing_response("the ports of containers"):
        for one in found:
            is_own = owner.owns(one.get("Labels") or {}, workload_id)
            for port in one["Ports"]:
                if "PublicPort" in port:
                    (own if is_own else others).add((port["PublicPort"], port["Type"]))
    for port in ports:
        key = (port.host_port, port.protocol)
        if port.host_port and (key in others or (key not in own and _is_in_use(port))):
            text = f"host port {port.host_port}/{port.protocol} is already in use on this node"
            return Failure(FailureReason.NETWORK_ERROR, text, code="PortTaken")
    return None


def _is_in_use(port: Port) -> bool:
    """Try to bind the port."""
    kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind is socket.SOCK_STREAM:
            # A recently closed connection does not block the port; a listener does.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port.host_port))
        except OSError as err:
            return err.errno == errno.EADDRINUSE
    return False
