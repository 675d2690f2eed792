"""Logs of containers and commands inside them.

Containers are found by their labels, so a stack has one part per service container. Docker applies `tail`
before `since` and `until`.

When a client disconnects, its command gets SIGHUP, as from a terminal. Docker has no API call for it. The
signal is sent only if /proc shows that the process belongs to the container: with a remote Docker the pid is
not valid on this host.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from msgspec import Struct

from persys.agent.runtimes.docker.engine import (
    DEADLINE_SECONDS,
    Duplex,
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.log_frames import Frame, Frames, FrameTooLargeError
from persys.agent.runtimes.docker.mapping import SERVICE_LABEL, WORKLOAD_LABEL, OwnerLabels
from persys.errors import NotFoundError, RefusedError, RuntimeUnavailableError
from persys.model.ids import WorkloadId

_LINES_MAX = 100
_ANSWER_BYTES_MAX = 256 * 1024
_HEADER_BYTES = 8
_STDERR = 2


_DEADLINE_SECONDS = 5.0
_NEVER = "0001-"
_BOUNDARY_NANOS = 90_000_000  # below Docker's minimum restart delay
_RESIZE_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05
_END_ATTEMPTS = 100


class ContainerPart(Struct, frozen=True):
    """One container of a workload."""

    id: str
    service: str  # of a stack, otherwise ""
    tty: bool
    status: str
    started_at: str  # as Docker reports it, in nanoseconds
    finished_at: str  # of the previous run while it is running
    pid: int = 0  # of its first process; 0 if it is not running
    network_mode: str = ""
    addresses: tuple[str, ...] = ()  # in its networks

    def before_current_run(self) -> str:
        """A time between the previous run and the current one; "" if there was no previous run.

        Docker records a start after the first output and an end before the last output. It waits at least
        100 ms before a restart, so the boundary is shortly after the end.
        """
        if self.finished_at.startswith(_NEVER):
            return ""
        started, finished = unix_nanos(self.started_at), unix_nanos(self.finished_at)
        if finished >= started:
            return unix_seconds(started - _BOUNDARY_NANOS)
        return unix_seconds(min((started + finished) // 2, finished + _BOUNDARY_NANOS))


class DockerAccess:
    def __init__(self, engine: Engine, owner: OwnerLabels) -> None:
        self.engine = engine
        self._engine = engine
        self._owner = owner

    async def parts(self, workload_id: WorkloadId) -> list[ContainerPart]:
        """All containers, also exited ones, sorted by service."""
        filters = {"label": self._owner.filters(**{WORKLOAD_LABEL: workload_id})}
        params = {"all": "true", "filters": json.dumps(filters)}
        try:
            listed = await self._engine.call("GET", "containers/json", params=params)
        except EngineError as err:
            raise as_unavailable(err) from err
        with parsing_response(f"the containers of {workload_id}"):
            ids = [str(each["Id"]) for each in listed]
        found = [await self.part(container_id) for container_id in ids]
        return sorted((one for one in found if one is not None), key=lambda one: one.service)

    async def part(self, container_id: str) -> ContainerPart | None:
        """The current state of a container; None if it was removed."""
        try:
            found = await self._engine.call("GET", f"containers/{container_id}/json")
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return None
            raise as_unavailable(err) from err
        with parsing_response(container_id):
            return _part(found)

    async def frames(
        self,
        part: ContainerPart,
        *,
        follow: bool = False,
        since: str = "",
        until: str = "",
        tail: int = 0,
        stamped: bool = False,
    ) -> AsyncGenerator[list[Frame], None]:
        """Log output in batches. `since` and `until` are Unix seconds with a fraction.

        Ends when the container exits or is removed, or, without `follow`, at the end of the log.
        """
        params = {
            "stdout": "true",
            "stderr": "true",
            "follow": str(follow).lower(),
            "timestamps": str(stamped).lower(),
            "tail": str(tail) if tail else "all",
            **({"since": since} if since else {}),
            **({"until": until} if until else {}),
        }
        framed = Frames()
        silence = None if follow else DEADLINE_SECONDS
        try:
            async with aclosing(
                self._engine.chunks(f"containers/{part.id}/logs", params=params, silence=silence)
            ) as chunks:
                async for chunk in chunks:
                    yield [Frame("stdout", chunk)] if part.tty else framed.feed(chunk)
        except FrameTooLargeError as err:
            raise RuntimeUnavailableError(f"the log of {part.id}: {err}") from err
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return
            raise refusal(err) from err

    @asynccontextmanager
    async def exec(
        self, part: ContainerPart, command: Sequence[str], *, tty: bool, stdin: bool
    ) -> AsyncIterator["Session"]:
        body = {
            "AttachStdin": stdin,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": tty,
            "Cmd": list(command),
        }
        try:
            created = await self._engine.call("POST", f"containers/{part.id}/exec", body=body)
            with parsing_response("a command"):
                exec_id = str(created["Id"])
            async with self._engine.open_exec(f"exec/{exec_id}/start", tty=tty) as duplex:
                session = Session(self._engine, exec_id, duplex)
                try:
                    yield session
                finally:
                    if not session.has_ended:
                        await send_hangup(self._engine, exec_id, part.id)
        except EngineError as err:
            raise refusal(err) from err


class Session:
    """A command that runs in a container."""

    def __init__(self, engine: Engine, exec_id: str, duplex: Duplex) -> None:
        self._engine = engine
        self._id = exec_id
        self.read = duplex.read
        self.write = duplex.write
        self.end_input = duplex.end_input
        self.has_ended = False

    async def resize(self, rows: int, columns: int) -> None:
        """Best effort: Docker rejects it before the process has started and after it has exited."""
        for _ in range(_RESIZE_ATTEMPTS):
            try:
                params = {"h": str(rows), "w": str(columns)}
                await self._engine.call("POST", f"exec/{self._id}/resize", params=params)
                return
            except EngineError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def exit_code(self) -> int:
        """Call after all output was read. Docker records the exit shortly after the last byte."""
        for _ in range(_END_ATTEMPTS):
            found = await self._engine.call("GET", f"exec/{self._id}/json")
            with parsing_response("a command"):
                if not found["Running"] and found["ExitCode"] is not None:
                    self.has_ended = True
                    return int(found["ExitCode"])
            await asyncio.sleep(_PAUSE_SECONDS)
        raise RuntimeUnavailableError("docker did not report the exit code of the command")


def _part(found: dict[str, Any]) -> ContainerPart:
    labels = found["Config"].get("Labels") or {}
    return ContainerPart(
        id=found["Id"],
        service=labels.get(SERVICE_LABEL, ""),
        tty=found["Config"].get("Tty", False),
        status=found["State"]["Status"],
        started_at=found["State"]["StartedAt"],
        finished_at=found["State"]["FinishedAt"],
        pid=int(found["State"].get("Pid") or 0),
        network_mode=(found.get("HostConfig") or {}).get("NetworkMode") or "",
        addresses=_addresses(found),
    )


def _addresses(found: dict[str, Any]) -> tuple[str, ...]:
    networks = (found.get("NetworkSettings") or {}).get("Networks") or {}
    return tuple(
        one[key]
        for one in networks.values()
        for key in ("IPAddress", "GlobalIPv6Address")
        if one and one.get(key)
    )


def unix_nanos(stamp: str) -> int:
    """Parse a Docker timestamp; datetime has no nanoseconds."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 10**9 + int(fraction.ljust(9, "0")[:9])


def unix_seconds(nanos: int) -> str:
    """Format a timestamp for Docker's `since` and `until`."""
    return f"{nanos // 10**9}.{nanos % 10**9:09}"


def refusal(err: EngineError) -> Exception:
    if err.status == HTTPStatus.NOT_FOUND:
        return NotFoundError("container", err.message)
    if err.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return RefusedError(err.message)
    return as_unavailable(err)


async def tail(engine: Engine, container_id: str) -> str:
    """The last lines of standard error, or of standard output if standard error is empty."""
    for stream in ("stderr", "stdout"):
        content = await engine.read(
            f"containers/{container_id}/logs",
            params={stream: "true", "tail": str(_LINES_MAX)},
            bytes_max=_ANSWER_BYTES_MAX,
        )
        text = payloads(content).decode("utf-8", "replace").strip()
        if text:
            return text
    return ""


def payloads(content: bytes) -> bytes:
    """Frames without headers. If the beginning was cut off, decoding starts at the first whole frame."""
    start = _first_frame(content)
    parts = []
    while start + _HEADER_BYTES <= len(content):
        size = int.from_bytes(content[start + 4 : start + _HEADER_BYTES])
        start += _HEADER_BYTES
        parts.append(content[start : start + size])
        start += size
    return b"".join(parts)


def _first_frame(content: bytes) -> int:
    for start in range(len(content)):
        if content[start] <= _STDERR and content[start + 1 : start + 4] == b"\0\0\0":
            return start
    return len(content)


async def send_hangup(engine: Engine, exec_id: str, container_id: str) -> None:
    try:
        found = await engine.call("GET", f"exec/{exec_id}/json", deadline=_DEADLINE_SECONDS)
    except (EngineError, RuntimeUnavailableError):
        return
    with suppress(RuntimeUnavailableError), parsing_response("a command"):
        pid = int(found["Pid"] or 0) if found["Running"] else 0
        if pid and is_inside(pid, container_id):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGHUP)


def is_inside(pid: int, container_id: str) -> bool:
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
