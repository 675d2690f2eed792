"""Nodes with a network namespace, a Docker and an agent each, connected by a bridge of the host.

The test plays the scheduler: it sends the configuration of networks and the orders to the agents.
"""

import socket
import subprocess
import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc

from e2e.cluster import BIN
from e2e.own_docker import OwnDocker
from e2e.process import Process
from e2e.waiting import eventually
from persys.wire.gen.agent.v1 import agent_pb2 as pb
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub

DOMAIN = "test.internal"
SUBNET = "10.128.0.0/22"
_PORT = 50051


class Switch:
    """A bridge in a network namespace of its own, where no rules of Docker drop packets between nodes.

    The host is connected to it too.
    """

    def __init__(self) -> None:
        self._tag = uuid.uuid4().hex[:6]
        self._namespace = f"persys-switch-{self._tag}"
        self._third = int(self._tag[:2], 16)
        ip("netns", "add", self._namespace)
        ip("-n", self._namespace, "link", "add", "switch", "type", "bridge")
        ip("-n", self._namespace, "link", "set", "switch", "up")
        inner = self._plug(0, None)
        ip("addr", "add", f"10.215.{self._third}.1/24", "dev", inner)
        ip("link", "set", inner, "up")

    def connect(self, namespace: str, number: int) -> str:
        """Returns the address of the namespace."""
        inner = self._plug(number, namespace)
        address = f"10.215.{self._third}.{number + 1}"
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", inner)
        ip("-n", namespace, "link", "set", inner, "up")
        return address

    def close(self) -> None:
        ip("netns", "delete", self._namespace)

    def _plug(self, number: int, namespace: str | None) -> str:
        """Connect a namespace, or the host. Returns the name of its device."""
        outer, inner = f"port{number}", f"pw{self._tag}i{number}"
        there = ("netns", namespace) if namespace is not None else ()
        ip(
            "link",
            "add",
            inner,
            *there,
            "type",
            "veth",
            "peer",
            "name",
            outer,
            "netns",
            self._namespace,
        )
        ip("-n", self._namespace, "link", "set", outer, "master", "switch", "up")
        return inner


class NetworkNode:
    def __init__(self, switch: Switch, number: int, directory: Path, image: str) -> None:
        self.name = f"node-{number}"
        self.image = image
        self._directory = directory
        self._undo = ExitStack()
        # Frames between ports do not need the rules of Docker for forwarded packets.
        self.docker = OwnDocker()
        self._undo.callback(self.docker.close)
        self.address = switch.connect(self.docker.namespace, number)
        self.slice = f"10.128.{(number - 1) // 4}.{(number - 1) % 4 * 64}/26"
        self._log = directory / f"{self.name}.log"
        self.agent = self.new_agent({})
        self._undo.callback(lambda: self.agent.close())
        self.connect()

    def new_agent(self, env: dict[str, str]) -> Process:
        return Process(
            [
                *("nsenter", f"--net=/run/netns/{self.docker.namespace}"),
                *(str(BIN / "persys-agent"), "-insecure", "-standalone"),
            ],
            {
                "PERSYS_GRPC_ADDR": self.address,
                "PERSYS_GRPC_PORT": str(_PORT),
                "PERSYS_NODE_ID": self.name,
                "PERSYS_STATE_PATH": str(self._directory / f"{self.name}.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(self._directory / self.name),
                "PERSYS_METRICS_PORT": "8089",
                "DOCKER_HOST": self.docker.host,
                "PERSYS_COMPOSE_ENABLED": "true",
                **env,
            },
            log=self._log,
            ready=self._listens,
        )

    def _listens(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex((self.address, _PORT)) == 0

    def connect(self) -> None:
        """A new connection: an old one waits before it connects to a restarted agent."""
        channel = grpc.insecure_channel(f"{self.address}:{_PORT}")
        self._undo.callback(channel.close)
        self.stub = AgentServiceStub(channel)

    def start(self) -> None:
        self.docker.start()
        self.docker.copy_image(self.image)
        self.agent.start()

    def close(self) -> None:
        self._undo.close()

    @property
    def log(self) -> str:
        return self._log.read_text()[-6000:]

    def run(self, *command: str) -> str:
        """Run a command in the network namespace of the node."""
        enter = ("nsenter", f"--net=/run/netns/{self.docker.namespace}")
        return run(*enter, *command)

    def containers(self, *arguments: str) -> str:
        return run("docker", "--host", self.docker.host, *arguments)

    def exec(self, workload_id: str, *command: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the container of a workload."""
        found = self.container_of(workload_id)
        return subprocess.run(
            ["docker", "--host", self.docker.host, "exec", "-i", found, *command],
            capture_output=True,
            timeout=60,
            check=False,
        )

    def container_of(self, workload_id: str) -> str:
        return self.containers(
            "ps", "-q", "--filter", f"label=persys.workload_id={workload_id}"
        ).strip()

    def apply(
        self, workload_id: str, *command: str, networks: Sequence[str] = ("backend",)
    ) -> None:
        self.stub.ApplyWorkload(
            pb.ApplyWorkloadRequest(
                id=workload_id,
                type=pb.WORKLOAD_TYPE_CONTAINER,
                revision_id="r1",
                desired_state=pb.DESIRED_STATE_RUNNING,
                spec=pb.WorkloadSpec(
                    container=pb.ContainerSpec(
                        image=self.image, command=command, init=True, stop_grace_seconds=1
                    )
                ),
                networks=networks,
            ),
            timeout=30,
        )

    def apply_stack(self, workload_id: str, compose: str) -> None:
        encoded = b64encode(compose.encode()).decode()
        self.stub.ApplyWorkload(
            pb.ApplyWorkloadRequest(
                id=workload_id,
                type=pb.WORKLOAD_TYPE_COMPOSE,
                revision_id="r1",
                desired_state=pb.DESIRED_STATE_RUNNING,
                spec=pb.WorkloadSpec(
                    compose=pb.ComposeSpec(project_name=workload_id, compose_yaml=encoded)
                ),
                networks=["backend"],
            ),
            timeout=30,
        )

    def status(self, workload_id: str) -> pb.WorkloadStatus:
        request = pb.GetWorkloadStatusRequest(id=workload_id)
        status: pb.WorkloadStatus = self.stub.GetWorkloadStatus(request, timeout=30).status
        return status

    def address_of(self, workload_id: str) -> str:
        """Waits until it runs."""

        def runs() -> bool:
            return self.status(workload_id).actual_state == pb.ACTUAL_STATE_RUNNING

        eventually(runs, lambda: f"{self.status(workload_id)} {self.log}")
        return self.status(workload_id).metadata["network.backend"]


def configure(
    nodes: Sequence[NetworkNode],
    version: str,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    rules: Sequence[pb.NetworkRule] = (),
    network_ids: Sequence[str] = ("backend",),
) -> None:
    """Each node gets the networks, with all other nodes as peers."""
    known = [pb.NetworkName(name=name, addresses=found) for name, found in (names or {}).items()]
    for node in nodes:
        others = [one for one in nodes if one is not node]
        networks = [
            pb.NodeNetwork(
                network_id=network_id,
                number=7,
                subnet=SUBNET,
                slices=[node.slice],
                peers=[
                    pb.NetworkPeer(node_id=one.name, address=one.address, slices=[one.slice])
                    for one in others
                ],
                names=known,
                rules=rules,
            )
            for network_id in network_ids
        ]
        request = pb.ConfigureNetworksRequest(version=version, networks=networks, domain=DOMAIN)
        node.stub.ConfigureNetworks(request, timeout=30)


def ip(*arguments: str) -> None:
    run("ip", *arguments)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
