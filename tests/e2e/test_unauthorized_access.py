"""Access to real processes with no certificate, a wrong one, or a revoked one."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.ca.cli import run_command
from persys.client import SchedulerClient
from persys.client.ca.client import AuthorityClient
from persys.client.grpc.channel import Trust
from persys.errors import DeniedError
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import new_key, new_request
from persys.model.identity import Identity, Role, server_name
from persys.wire.ca.messages import RevokeRequest, TokenRequest
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from unauthenticated import openssl_connects, reflected_services

BIN = Path(sys.executable).parent
NODE = Identity(Role.AGENT, "n1")


class SecureCluster:
    """A CA, a scheduler and an agent without runtimes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ca, self.scheduler_port, self.agent_port = (free_port() for _ in range(3))
        self.ca_addr = f"127.0.0.1:{ca}"
        self.target = f"127.0.0.1:{self.scheduler_port}"
        self._ca_dir = {"PERSYS_CA_DIR": str(folder / "ca")}
        self.ca = Process(
            [str(BIN / "persys-ca")],
            {**self._ca_dir, "PERSYS_CA_LISTEN": "127.0.0.1", "PERSYS_CA_PORT": str(ca)},
            log=folder / "ca.log",
            ready=lambda: listens_on(ca),
        )
        self.scheduler = Process(
            [str(BIN / "persys-scheduler")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(self.scheduler_port),
                "METRICS_PORT": str(free_port()),
                "PERSYS_STORE": f"sqlite:{folder / 'scheduler.db'}",
                "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
                **self._tls_variables(self.certificate(Role.SCHEDULER, "s1")),
            },
            log=folder / "scheduler.log",
            ready=lambda: listens_on(self.scheduler_port),
        )
        self.node = self.certificate(Role.AGENT, NODE.name)
        self.agent = Process(
            [str(BIN / "persys-agent")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(self.agent_port),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_DOCKER_ENABLED": "false",
                "PERSYS_VM_ENABLED": "false",
                "PERSYS_STATE_PATH": str(folder / "agent.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(folder / "volumes"),
                "PERSYS_SCHEDULER_ADDR": self.target,
                **self._tls_variables(self.node),
            },
            log=folder / "agent.log",
            ready=lambda: listens_on(self.agent_port),
        )
        self.admin = self.certificate(Role.ADMIN, "ada")

    def certificate(self, role: Role, name: str) -> CertificateFiles:
        out = self.folder / f"{role}-{name}"
        words = ("certificate", "--role", role, "--name", name, "--out", str(out))
        run_command([*words], self._ca_dir)
        return CertificateFiles(out / f"{role}.crt", out / f"{role}.key", out / "ca.crt")

    def ca_client(self, files: CertificateFiles) -> AuthorityClient:
        return AuthorityClient([self.ca_addr], files)

    def client(self) -> SchedulerClient:
        return SchedulerClient(self.target, timeout=timedelta(seconds=10), trust=Trust(self.admin))

    def is_ready(self) -> bool:
        with self.client() as client:
            return [node.node_id for node in client.list_nodes(status="Ready")] == [NODE.name]

    def join_again(self) -> None:
        """Join with a new token, as an operator does, while the agent runs."""
        request = TokenRequest(NODE.role, NODE.name)
        token = self.ca_client(self.admin).create_token(request).token
        result = subprocess.run(
            [
                *(BIN / "persys-agent", "join", self.target, token),
                *("--config", self.folder / "agent.yaml", "--tls-ca", self.node.roots),
                *("--tls-cert", self.node.certificate, "--tls-key", self.node.key),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr

    def _tls_variables(self, files: CertificateFiles) -> dict[str, str]:
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
            "PERSYS_CA_ADDR": self.ca_addr,
            "PERSYS_TLS_CRL_INTERVAL": "200ms",
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    created = SecureCluster(tmp_path_factory.mktemp("secure"))
    try:
        for process in (created.ca, created.scheduler, created.agent):
            process.start()
        eventually(created.is_ready, "the node to be ready")
        yield created
    finally:
        for process in (created.agent, created.scheduler, created.ca):
            process.close()


def connect(port: int, role: Role, credentials: grpc.ChannelCredentials) -> grpc.Channel:
    name = ("grpc.ssl_target_name_override", server_name(role))
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=[name])


def credentials_of(files: CertificateFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        files.roots.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )


@pytest.mark.parametrize("role", [Role.SCHEDULER, Role.AGENT])
def test_openssl_and_reflection_are_refused_without_a_certificate(
    cluster: SecureCluster, role: Role
) -> None:
    port = cluster.scheduler_port if role is Role.SCHEDULER else cluster.agent_port
    chain = str(cluster.admin.certificate)
    own = ("-cert", chain, "-cert_chain", chain, "-key", str(cluster.admin.key))
    roots = cluster.admin.roots.read_bytes()

    assert openssl_connects(port, "-tls1_3", *own)
    assert not openssl_connects(port, "-tls1_3")
    assert not openssl_connects(port, "-tls1_2")
    assert not openssl_connects(port, "-tls1_1", *own)
    assert reflected_services(connect(port, role, credentials_of(cluster.admin)))
    assert reflected_services(connect(port, role, grpc.ssl_channel_credentials(roots))) == []
    assert reflected_services(grpc.insecure_channel(f"127.0.0.1:{port}")) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.AGENT, Role.GATEWAY])
def test_an_agent_accepts_orders_only_from_schedulers_and_admins(
    cluster: SecureCluster, role: Role
) -> None:
    files = cluster.certificate(role, "other")
    with connect(cluster.agent_port, Role.AGENT, credentials_of(files)) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)
        for call, request in (
            (stub.ListWorkloads, agent_pb2.ListWorkloadsRequest()),
            (stub.ApplyWorkload, agent_pb2.ApplyWorkloadRequest()),
            (stub.DeleteWorkload, agent_pb2.DeleteWorkloadRequest(id="w")),
        ):
            with pytest.raises(grpc.RpcError) as err:
                call(request, timeout=10)
            assert err.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_removed_node_is_refused_by_scheduler_and_ca_until_it_joins_again(
    cluster: SecureCluster, tmp_path: Path
) -> None:
    stolen = CertificateFiles(*(tmp_path / path.name for path in cluster.node))
    for path, copy in zip(cluster.node, stolen, strict=True):
        copy.write_bytes(path.read_bytes())
    with cluster.client() as client:
        client.remove_node(NODE.name)
        eventually(lambda: "was removed" in cluster.agent.log, "the agent logs it")
        assert [node.node_id for node in client.list_nodes()] == []

    def is_not_renewed() -> bool:
        try:
            cluster.ca_client(stolen).renew(new_request(new_key(), NODE, ()))
        except DeniedError as err:
            return err.reason == "revoked"
        return False

    eventually(is_not_renewed, "the CA refuses the certificate")
    cluster.join_again()
    eventually(cluster.is_ready, "the node is ready again")
    assert is_not_renewed()


def test_a_revoked_node_is_refused_until_it_joins_again(cluster: SecureCluster) -> None:
    cluster.ca_client(cluster.admin).revoke(RevokeRequest(role=NODE.role, name=NODE.name))
    eventually(lambda: "has been revoked" in cluster.agent.log, "the agent logs it")
    cluster.join_again()
    eventually(cluster.is_ready, "the node is ready again")
