"""A scheduler and an agent in a temporary directory, on free ports, and the bare socket of Docker."""

import http.client
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from persys.cli.framework.exit_codes import SetupError
from persys.cli.local.daemon import BackgroundProcess
from persys.cli.local.poll import poll
from persys.client.scheduler import SchedulerClient
from persys.errors import UnavailableError

_START_DEADLINE = timedelta(seconds=60)
_GRACE = timedelta(seconds=10)
_CALL_TIMEOUT = timedelta(seconds=30)
_CALL_SECONDS = 120
_SOCKET = "/var/run/docker.sock"
_LOCAL = "127.0.0.1"


@contextmanager
def local_cluster(*, with_agent: bool) -> Iterator[SchedulerClient]:
    """Without TLS, like the floors. All of it is stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="persys-bench-") as name:
        directory = Path(name)
        port = _free_port()
        processes = [_scheduler(directory, port)]
        if with_agent:
            processes.append(_agent(directory, port))
        try:
            for process in processes:
                process.start()
            with SchedulerClient(f"{_LOCAL}:{port}", timeout=_CALL_TIMEOUT) as client:
                _wait_until_ready(client, processes, nodes=int(with_agent))
                yield client
        finally:
            for process in reversed(processes):
                process.stop(grace=_GRACE)


def _scheduler(directory: Path, port: int) -> BackgroundProcess:
    return _process(
        "scheduler",
        directory,
        {
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(_free_port()),
            "PERSYS_STORE": f"sqlite:{directory}/scheduler.db",
        },
    )


def _agent(directory: Path, scheduler_port: int) -> BackgroundProcess:
    port = _free_port()
    return _process(
        "agent",
        directory,
        {
            "PERSYS_GRPC_PORT": str(port),
            "PERSYS_METRICS_PORT": str(_free_port()),
            "PERSYS_STATE_PATH": str(directory / "agent.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
            "PERSYS_VM_IMAGES_DIR": str(directory / "images"),
            "PERSYS_VM_ENABLED": "false",
            "PERSYS_SCHEDULER_ADDR": f"{_LOCAL}:{scheduler_port}",
            "PERSYS_NODE_ID": f"bench-{port}",
            # The machine may be busy, and the container must be admitted all the same.
            "PERSYS_ADMISSION_CPU_PERCENT": "100",
            "PERSYS_ADMISSION_MEMORY_PERCENT": "100",
            "PERSYS_ADMISSION_DISK_PERCENT": "100",
        },
    )


def _process(name: str, directory: Path, environ: Mapping[str, str]) -> BackgroundProcess:
    command = (sys.executable, "-m", f"persys.{name}", "-insecure")
    return BackgroundProcess(name, command, {"PERSYS_INSECURE": "true", **environ}, directory)


def _wait_until_ready(
    client: SchedulerClient, processes: list[BackgroundProcess], *, nodes: int
) -> None:
    """Raises SetupError."""

    def is_ready() -> bool | None:
        for process in processes:
            process.check_runs()
        try:
            return len(client.list_nodes()) >= nodes or None
        except UnavailableError:
            return None

    if poll(is_ready, within=_START_DEADLINE) is None:
        raise processes[-1].failure("did not respond in time")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOCAL, 0))
        return int(probe.getsockname()[1])


class BareDocker:
    """Create and start on the socket of Docker, nothing else: the floor of a container."""

    def __init__(self) -> None:
        self._path = os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or _SOCKET

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Raises SetupError."""
        connection = _UnixConnection(self._path)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as err:
            raise SetupError(f"docker at {self._path}: {err}") from err
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise SetupError(f"docker: {method} {path}: {content.decode(errors='replace')}")
        found: dict[str, Any] = json.loads(content) if content else {}
        return found


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=_CALL_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
