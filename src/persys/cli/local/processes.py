"""The background processes of `persys up`: a CA, a scheduler, an agent and a gateway.

`start` waits until each one answers. The keys of the CA are on this machine, so certificates are issued in
this process, without a request to its port. Valid certificates are kept; the processes renew theirs.
"""

import fcntl
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from persys.ca.cli import is_revoked, run_command
from persys.ca.key_files import ROOTS
from persys.cli.framework.exit_codes import SetupError
from persys.cli.framework.live import Progress
from persys.cli.local.daemon import BackgroundProcess
from persys.cli.local.poll import poll
from persys.client.agent import AgentClient
from persys.client.ca.https import fetch_unverified
from persys.client.grpc.channel import Trust
from persys.client.scheduler import SchedulerClient
from persys.core.auth.certificate_renewal import Freshness, freshness
from persys.core.duration import format_duration
from persys.errors import SettingsError, UnavailableError
from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import SystemClock
from persys.infra.net.node_name import own_node_id
from persys.infra.tls.certificates import read_key_pair
from persys.infra.tls.identity import read_claims
from persys.model.identity import Identity
from persys.model.role import Role
from persys.wire.gen.control.v1.control_pb2 import NodeView

# Only `persys up` renews it, so it must outlast a long break between two runs.
USER_VALIDITY = timedelta(days=365)
_LOCAL = ("127.0.0.1", "localhost")
T = TypeVar("T")
_START_DEADLINE = timedelta(seconds=30)
_STOP_GRACE = timedelta(seconds=10)
# The machine may be busy with other work, and a demo must be admitted all the same.
_ADMIT_ALWAYS = {
    f"PERSYS_ADMISSION_{resource}_PERCENT": "100" for resource in ("CPU", "MEMORY", "DISK")
}
_CALL_TIMEOUT = timedelta(seconds=2)


class LocalCertificates:
    def __init__(self, state_dir: Path, ca_port: int) -> None:
        self.ca_dir = state_dir / "ca"
        self._certs = state_dir / "certs"
        self.ca_environ: Mapping[str, str] = {
            "PERSYS_CA_DIR": str(self.ca_dir),
            "PERSYS_CA_PORT": str(ca_port),
            "PERSYS_CA_LISTEN": "0.0.0.0",
        }

    def files(self, role: Role) -> CertificateFiles:
        folder = self._certs / role
        return CertificateFiles(folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt")

    def environ(self, role: Role) -> dict[str, str]:
        files = self.files(role)
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
            "PERSYS_CA_ADDR": f"127.0.0.1:{self.ca_environ['PERSYS_CA_PORT']}",
        }

    @property
    def trust(self) -> Trust:
        """The TLS settings of the local admin."""
        return Trust(self.files(Role.ADMIN))

    def ensure(self) -> list[str]:
        """Issue missing and expiring certificates; returns their identities. Raises SettingsError."""
        host = socket.gethostname()
        node = own_node_id(os.environ.get("PERSYS_NODE_ID", ""), self._stored_node_id())
        wanted = (
            (Identity(Role.SCHEDULER, host), _LOCAL, None),
            (Identity(Role.AGENT, node), _LOCAL, None),
            (Identity(Role.GATEWAY, host), (*_LOCAL, host), None),
            (Identity(Role.ADMIN, "up"), (), USER_VALIDITY),
        )
        return [
            str(identity)
            for identity, hosts, validity in wanted
            if not self._is_valid(identity) and self._issue(identity, hosts, validity)
        ]

    def _stored_node_id(self) -> str:
        """The node id in the agent's certificate, valid or expired; "" without one."""
        try:
            claims = read_claims(self.files(Role.AGENT).certificate.read_bytes())
        except (OSError, ValueError, SettingsError):
            return ""
        return claims.identity.name if claims.identity is not None else ""

    def _is_valid(self, identity: Identity) -> bool:
        files, now = self.files(identity.role), SystemClock().now()
        try:
            pair = read_key_pair(files, now)
            if (self.ca_dir / ROOTS).read_bytes() not in pair.roots:
                return False  # the CA was recreated
        except (SettingsError, OSError):
            return False
        if is_revoked(pair.claims.serial, {**os.environ, **self.ca_environ}):
            return False  # for example that of a removed node
        left = freshness(pair.claims.not_before, pair.claims.not_after, now)
        renews_itself = identity.role is not Role.ADMIN
        fresh = (Freshness.FRESH, Freshness.DUE) if renews_itself else (Freshness.FRESH,)
        return pair.claims.identity == identity and left in fresh

    def _issue(self, identity: Identity, hosts: Sequence[str], validity: timedelta | None) -> bool:
        words = ["certificate", "--role", identity.role, "--name", identity.name]
        for host in hosts:
            words += ["--host", host]
        if validity is not None:
            words += ["--ttl", format_duration(validity)]
        words += ["--out", str(self._certs / identity.role)]
        run_command(words, {**os.environ, **self.ca_environ})
        return True


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
        progress.done(f"CA is listening on {self.authority} (log {self.ca.log_path})")
        for identity in self.certificates.ensure():
            progress.done(f"certificate for {identity}")
        _ensure_running(self.scheduler, self.ports.scheduler, progress)
        self._wait(self.scheduler, self._scheduler_answers, "answer")
        progress.done(f"scheduler is listening on {self.target} (log {self.scheduler.log_path})")
        _ensure_running(self.agent, self.ports.agent, progress)
        progress.step("waiting for the node to be ready")
        node = self._wait(self.agent, self._ready_node, "become ready")
        progress.done(f"node {node.node_id} is ready (log {self.agent.log_path})")
        _ensure_running(self.gateway, self.ports.gateway, progress)
        self._wait(self.gateway, self._gateway_answers, "answer")
        progress.done(f"gateway is listening on {self.dashboard} (log {self.gateway.log_path})")

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
