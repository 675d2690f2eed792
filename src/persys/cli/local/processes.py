"""The background processes of `persys up`: a CA, a scheduler, an agent and a gateway.

Each has its own certificate. `start` waits until each one answers.
"""

import fcntl
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from persys.cli.framework.exit_codes import SetupError
from persys.cli.framework.live import Progress
from persys.cli.local.certificates import LocalCertificates
from persys.cli.local.daemon import BackgroundProcess
from persys.cli.local.poll import poll
from persys.client.agent import AgentClient
from persys.client.ca.https import fetch_unverified
from persys.client.scheduler import SchedulerClient
from persys.errors import UnavailableError
from persys.model.role import Role
from persys.wire.gen.control.v1.control_pb2 import NodeView

T = TypeVar("T")

_START_DEADLINE = timedelta(seconds=30)
_STOP_GRACE = timedelta(seconds=10)
# The machine may be busy with other work, and a demo must be admitted all the same.
_ADMIT_ALWAYS = {
    f"PERSYS_ADMISSION_{resource}_PERCENT": "100" for resource in ("CPU", "MEMORY", "DISK")
}
_CALL_TIMEOUT = timedelta(seconds=2)


class Ports(NamedTuple):
    ca: int
    scheduler: int
    scheduler_metrics: int
    agent: int
    agent_metrics: int
    gateway: int
    gateway_public: int


class ControlPlane:
    def __init__(self, state_dir: Path, ports: Ports) -> None:
        self.state_dir = state_dir
        self.ports = ports
        self.target = f"127.0.0.1:{ports.scheduler}"
        self.certificates = LocalCertificates(state_dir, ports.ca)
        self.trust = self.certificates.trust
        self.ca = self._process(
            "ca",
            self.certificates.ca_environ,
        )
        self.scheduler = self._process(
            "scheduler",
            {
                "GRPC_PORT": str(ports.scheduler),
                "METRICS_PORT": str(ports.scheduler_metrics),
                "PERSYS_STORE": f"sqlite:{state_dir / 'scheduler.db'}",
                **self.certificates.environ(Role.SCHEDULER),
            },
        )
        self.agent = self._process(
            "agent",
            {
                "PERSYS_GRPC_PORT": str(ports.agent),
                "PERSYS_METRICS_PORT": str(ports.agent_metrics),
                "PERSYS_SCHEDULER_ADDR": self.target,
                "PERSYS_STATE_PATH": str(state_dir / "agent.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(state_dir / "volumes"),
                **self.certificates.environ(Role.AGENT),
                **_ADMIT_ALWAYS,
            },
        )
        self.gateway = self._process(
            "gateway",
            {
                "PERSYS_GATEWAY_PORT": str(ports.gateway),
                # Webhooks are not signed here, so they are accepted only from this machine.
                "PERSYS_GATEWAY_PUBLIC_ADDR": "127.0.0.1",
                "PERSYS_GATEWAY_PUBLIC_PORT": str(ports.gateway_public),
                "PERSYS_GATEWAY_AUDIT_DB": str(state_dir / "audit.db"),
                "PERSYS_SCHEDULER_ADDR": self.target,
                **self.certificates.environ(Role.GATEWAY),
            },
        )

    def _process(self, name: str, environ: Mapping[str, str]) -> BackgroundProcess:
        command = (sys.executable, "-m", f"persys.{name}")
        return BackgroundProcess(name, command, environ, self.state_dir, supervised=True)

    def start(self, progress: Progress) -> None:
        """Start the processes that do not run; restart those with other settings."""
        ports = self.ports
        for process, port in (
            (self.ca, ports.ca),
            (self.scheduler, ports.scheduler),
            (self.agent, ports.agent),
            (self.gateway, ports.gateway),
        ):
            if process.running() is None:
                _check_free(process, port)  # before any process is started
        _ensure_running(self.ca, ports.ca, progress)
        self._wait(self.ca, self._authority_answers, "answer")
        progress.done(f"CA answers at {self.authority} (log {self.ca.log_path})")
        for identity in self.certificates.ensure():
            progress.done(f"certificate for {identity}")
        _ensure_running(self.scheduler, self.ports.scheduler, progress)
        self._wait(self.scheduler, self._scheduler_answers, "answer")
        progress.done(f"scheduler answers at {self.target} (log {self.scheduler.log_path})")
        _ensure_running(self.agent, self.ports.agent, progress)
        progress.step("waiting for the node to be ready")
        node = self._wait(self.agent, self._ready_node, "become ready")
        progress.done(f"node {node.node_id} is ready (log {self.agent.log_path})")
        _ensure_running(self.gateway, self.ports.gateway, progress)
        self._wait(self.gateway, self._gateway_answers, "answer")
        progress.done(f"gateway answers at {self.dashboard} (log {self.gateway.log_path})")

    @property
    def processes(self) -> tuple[BackgroundProcess, ...]:
        """In start order."""
        return (self.ca, self.scheduler, self.agent, self.gateway)

    def stop(self, progress: Progress) -> None:
        for process in reversed(self.processes):
            progress.step(f"stopping {process.name}")
            if process.stop(grace=_STOP_GRACE):
                progress.done(f"{process.name} stopped")
            else:
                progress.done(f"{process.name} was not running")

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.ports.ca}"

    @property
    def dashboard(self) -> str:
        return f"https://127.0.0.1:{self.ports.gateway}/"

    def _gateway_answers(self) -> bool | None:
        try:
            fetch_unverified(f"127.0.0.1:{self.ports.gateway}", "/health", _CALL_TIMEOUT)
        except UnavailableError:
            return None
        return True

    def _authority_answers(self) -> bool | None:
        try:
            fetch_unverified(self.authority, "/api/v1/roots", _CALL_TIMEOUT)
        except UnavailableError:
            return None
        return True

    def _scheduler_answers(self) -> bool | None:
        try:
            with SchedulerClient(self.target, timeout=_CALL_TIMEOUT, trust=self.trust) as client:
                client.get_summary()
        except UnavailableError:
            return None
        return True

    def _ready_node(self) -> NodeView | None:
        # The scheduler may still list a previous agent as ready, so query this one too.
        try:
            address = f"127.0.0.1:{self.ports.agent}"
            with AgentClient(address, timeout=_CALL_TIMEOUT, trust=self.trust) as agent:
                if not agent.check_health().healthy:
                    return None
            with SchedulerClient(self.target, timeout=_CALL_TIMEOUT, trust=self.trust) as client:
                nodes = client.list_nodes(status="Ready")
        except UnavailableError:
            return None
        # Of all nodes that have joined, this is the one with the port of our agent.
        port = f":{self.ports.agent}"
        return next((node for node in nodes if node.grpc_endpoint.endswith(port)), None)

    def _wait(self, process: BackgroundProcess, probe: Callable[[], T | None], what: str) -> T:
        before = process.status().restarts

        def probe_while_it_runs() -> T | None:
            process.check_runs(restarts_before=before)
            return probe()

        try:
            found = poll(probe_while_it_runs, within=_START_DEADLINE)
        except SetupError:
            process.stop(grace=_STOP_GRACE)  # or the supervisor would restart it forever
            raise
        if found is None:
            raise process.failure(f"did not {what} within {_START_DEADLINE.seconds} s")
        return found


@contextmanager
def state_dir_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of the state directory, so that two commands do not start and stop processes at once."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("w")
    except OSError as err:
        raise SetupError(
            f"cannot use {state_dir}: {err.strerror}; run as root, or use another with --state-dir"
        ) from err
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise SetupError(
                f"another `persys` command is running in {state_dir}; wait until it ends"
            ) from err
        yield


def _ensure_running(process: BackgroundProcess, port: int, progress: Progress) -> None:
    pid = process.running()
    if pid is not None and process.has_same_settings():
        progress.done(f"{process.name} is already running (pid {pid})")
        return
    if pid is not None:
        progress.step(f"restarting {process.name} with new settings")
        process.stop(grace=_STOP_GRACE)
    _check_free(process, port)
    progress.step(f"starting {process.name}")
    process.start()


def _check_free(process: BackgroundProcess, port: int) -> None:
    if _is_in_use(port):
        raise SetupError(
            f"port {port} is in use by another process, so the {process.name} cannot start; "
            f"stop that process, or use another port with --{process.name}-port"
        )


def _is_in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
