"""A remote cluster in a network namespace with its own Docker, and the federation of a home cluster with it.

The remote cluster is secured: two schedulers on etcd, a gateway and an agent with certificates of its own CA.
The home cluster reaches only its gateway, over a link that a test can cut.
"""

import os
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from e2e.cluster import BIN, Cluster
from e2e.own_docker import OwnDocker
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.client.rest.connection import Gateway
from persys.errors import PersysError
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root

HOME, REMOTE, NODE = "home", "far", "far"
_ETCD, _GATEWAY, _SCHEDULERS = 2379, 8551, (8085, 8086)
_BRISK = {
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_LEADER_LEASE": "3s",
    "SCHEDULER_NODE_LEASE": "6s",
    "SCHEDULER_EVENTS_MAX": "100000",
}


class Link:
    """A veth pair between the host and a network namespace."""

    def __init__(self, namespace: str) -> None:
        tag = uuid.uuid4().hex[:6]
        self._namespace = namespace
        self._outer, self._inner = f"pf{tag}o", f"pf{tag}i"
        third = int(tag[:2], 16)
        self.host, self.address = f"10.214.{third}.1", f"10.214.{third}.2"
        pair = ("link", "add", self._outer, "type", "veth", "peer", "name", self._inner)
        _ip(*pair, "netns", namespace)
        _ip("addr", "add", f"{self.host}/30", "dev", self._outer)
        _ip("link", "set", self._outer, "up")
        _ip("-n", namespace, "addr", "add", f"{self.address}/30", "dev", self._inner)
        self.restore()

    def cut(self) -> None:
        """Packets are lost in both directions."""
        _ip("-n", self._namespace, "link", "set", self._inner, "down")

    def restore(self) -> None:
        _ip("-n", self._namespace, "link", "set", self._inner, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


class RemoteCluster:
    def __init__(self, directory: Path, image: str, agent: Mapping[str, str]) -> None:
        self._directory = directory
        self._root = Root(directory / "certs")
        self._undo = ExitStack()
        self.docker = OwnDocker()
        self._undo.callback(self.docker.close)
        self.link = Link(self.docker.namespace)
        self.url = f"https://{self.link.address}:{_GATEWAY}"
        trust = Trust(self._root.write(Role.ADMIN, "me"))
        gateway = Gateway(self.url, trust=trust)
        self.client = SchedulerClient(gateway, timeout=timedelta(seconds=30))
        self._undo.callback(self.client.close)
        self._image = image
        self._etcd = self._etcd_process()
        self.schedulers = [self._scheduler(port) for port in _SCHEDULERS]
        self._others = [self._gateway(), self._agent(agent)]
        for process in (self._etcd, *self.schedulers, *self._others):
            self._undo.callback(process.close)

    @property
    def ca(self) -> Path:
        """The trusted CA certificates of its gateway."""
        path = self._directory / "remote-ca.crt"
        path.write_bytes(self._root.pem)
        return path

    def start(self) -> None:
        """Returns when its node is ready."""
        self.docker.start()
        for process in (self._etcd, *self.schedulers, *self._others):
            process.launch()
        self.docker.copy_image(self._image)
        eventually(self._is_ready, lambda: f"the remote cluster is ready: {self.logs()}")

    def close(self) -> None:
        self._undo.close()

    def logs(self) -> dict[str, str]:
        names = ("etcd", *(f"scheduler-{port}" for port in _SCHEDULERS), "gateway", "agent")
        return {name: (self._directory / f"{name}.log").read_text()[-3000:] for name in names}

    def leader(self) -> Process:
        """The scheduler that leads."""
        port = int(self.client.get_mode().leader_endpoint.rpartition(":")[2])
        return self.schedulers[_SCHEDULERS.index(port)]

    def containers(self, workload_id: str) -> set[str]:
        """Ids of the running containers of a workload of the home cluster."""
        return running(f"{HOME}--{workload_id}", "--host", self.docker.host)

    def status(self, workload_id: str) -> str:
        """The status of a workload of the home cluster; empty: the cluster does not have it."""
        views = {each.workload_id: each.status for each in self.client.list_workloads()}
        return views.get(f"{HOME}--{workload_id}", "")

    def _is_ready(self) -> bool:
        try:
            return [node.status for node in self.client.list_nodes()] == ["Ready"]
        except PersysError:
            return False

    def _process(self, name: str, command: list[str], environment: Mapping[str, str]) -> Process:
        return Process(
            ["nsenter", f"--net=/run/netns/{self.docker.namespace}", *command],
            environment,
            log=self._directory / f"{name}.log",
            ready=self._is_ready,
        )

    def _etcd_process(self) -> Process:
        client = f"http://127.0.0.1:{_ETCD}"
        flags = (f"--listen-client-urls={client}", f"--advertise-client-urls={client}")
        data = f"--data-dir={self._directory / 'etcd'}"
        return self._process("etcd", ["etcd", data, *flags], {})

    def _scheduler(self, port: int) -> Process:
        files = self._root.write(Role.SCHEDULER, f"s{port}", hosts=("127.0.0.1",))
        environment = {
            "PERSYS_CLUSTER_ID": REMOTE,
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(port + 100),
            "PERSYS_STORE": "etcd",
            "ETCD_ENDPOINTS": f"127.0.0.1:{_ETCD}",
            "PERSYS_SECRETS_KEY_FILE": str(self._directory / "secrets.key"),
            **_BRISK,
            **self._root.variables(files),
        }
        return self._process(f"scheduler-{port}", [str(BIN / "persys-scheduler")], environment)

    def _gateway(self) -> Process:
        files = self._root.write(Role.GATEWAY, "g1", hosts=(self.link.address,))
        environment = {
            "PERSYS_SCHEDULER_ADDR": ",".join(f"127.0.0.1:{port}" for port in _SCHEDULERS),
            "PERSYS_GATEWAY_PORT": str(_GATEWAY),
            "PERSYS_GATEWAY_AUDIT_DB": str(self._directory / "audit.db"),
            **self._root.variables(files),
        }
        return self._process("gateway", [str(BIN / "persys-gateway")], environment)

    def _agent(self, settings: Mapping[str, str]) -> Process:
        files = self._root.write(Role.AGENT, "far1", hosts=("127.0.0.1",))
        environment = {
            "PERSYS_CLUSTER_ID": REMOTE,
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_NODE_ID": "far1",
            "PERSYS_STATE_PATH": str(self._directory / "far1.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(self._directory / "volumes"),
            "PERSYS_SCHEDULER_ADDR": ",".join(f"127.0.0.1:{port}" for port in _SCHEDULERS),
            "PERSYS_STOP_GRACE": "1s",
            "DOCKER_HOST": self.docker.host,
            **self._root.variables(files),
            **settings,
        }
        return self._process("agent", [str(BIN / "persys-agent")], environment)


class Federation:
    """The home cluster, and persys-federation with the remote cluster as a node of it."""

    def __init__(self, home: Cluster, remote: RemoteCluster, directory: Path) -> None:
        self.home = home
        self.remote = remote
        self._directory = directory
        self._process: Process | None = None

    def start(self) -> None:
        """As an operator does it: a token there, `federation add` here. Returns when the node is ready."""
        prefix = f"{HOME}--"
        created = self.remote.client.create_token(HOME, "operator", prefix=prefix)
        token = self._directory / "token"
        token.write_text(created.secret)
        place = self._directory / "federation"
        given = ("--remote", self.remote.url, "--remote-ca", str(self.remote.ca))
        limits = ("--price", "0.5", "--directory", str(place))
        added = self.persysctl(
            "federation", "add", NODE, "--token-file", str(token), *given, *limits
        )
        assert f"the token acts on {prefix}*" in added, added
        port = free_port()
        self._process = Process(
            [str(BIN / "persys-federation"), "-insecure", *("--metrics-port", str(free_port()))],
            {
                **_variables(place / f"{NODE}.env"),
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(port),
            },
            log=self._directory / "federation.log",
            ready=lambda: listens_on(port),
        )
        self._process.start()
        self.home.wait_until_node_is("Ready", node_id=NODE)

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def persysctl(self, *words: str, code: int = 0) -> str:
        result = subprocess.run(
            [BIN / "persysctl", "--scheduler", self.home.target, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._directory),
                "PERSYS_INSECURE": "true",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == code, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def node_of(self, workload_id: str) -> str:
        return self.home.client.get_workload(workload_id).assigned_node_id

    def copies(self, workload_id: str) -> int:
        """Running copies in both clusters; each of the workloads of these tests has one container."""
        at_home = running(workload_id, node_id=self.home.node_id)
        return len(at_home) + len(self.remote.containers(workload_id))

    def wait_until_offloaded(self, workload_id: str, *, within: float = 90) -> pb.WorkloadView:
        view = self.home.wait_for(workload_id, "Running", within=within)
        assert view.assigned_node_id == NODE, view
        return view


def running(workload_id: str, *options: str, node_id: str = "") -> set[str]:
    filters = ["--filter", f"label=persys.workload_id={workload_id}"]
    if node_id:
        filters += ["--filter", f"label=persys.node_id={node_id}"]
    words = ["docker", *options, "ps", "-q", "--no-trunc", *filters]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def _variables(file: Path) -> dict[str, str]:
    lines = file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))
