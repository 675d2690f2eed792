"""A scheduler and an agent with certificates from Vault, and an admin user."""

import sys
import uuid
from datetime import timedelta
from pathlib import Path

from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.infra.atomic_files import PRIVATE, PUBLIC, CertificateFiles, write_files
from persys.infra.tls.identity import Claims, read_claims
from vault.server import VaultServer

BIN = Path(sys.executable).parent


class Deployment:
    def __init__(self, server: VaultServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self.node_id = f"vault-{uuid.uuid4().hex[:8]}"
        scheduler_port, agent_port = free_port(), free_port()
        self.target = f"127.0.0.1:{scheduler_port}"
        self.scheduler_files = self._files("scheduler")
        self.agent_files = self._files("agent")
        self.scheduler = Process(
            [str(BIN / "persys-scheduler")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(scheduler_port),
                "METRICS_PORT": str(free_port()),
                "PERSYS_STORE": f"sqlite:{directory / 'scheduler.db'}",
                "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
                **self._variables(self.scheduler_files),
            },
            log=directory / "scheduler.log",
            ready=lambda: listens_on(scheduler_port),
        )
        self.agent = Process(
            [str(BIN / "persys-agent")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(agent_port),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_NODE_ID": self.node_id,
                "PERSYS_DOCKER_ENABLED": "false",
                "PERSYS_COMPOSE_ENABLED": "false",
                "PERSYS_VM_ENABLED": "false",
                "PERSYS_STATE_PATH": str(directory / "agent.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
                "PERSYS_SCHEDULER_ADDR": self.target,
                **self._variables(self.agent_files),
            },
            log=directory / "agent.log",
            ready=lambda: listens_on(agent_port),
        )
        self._scheduler_port = scheduler_port
        self.gateway_port = free_port()
        self.gateway = Process(
            [str(BIN / "persys-gateway")],
            {
                "PERSYS_GATEWAY_ADDR": "127.0.0.1",
                "PERSYS_GATEWAY_PORT": str(self.gateway_port),
                "PERSYS_GATEWAY_AUDIT_DB": "memory",
                "PERSYS_SCHEDULER_ADDR": self.target,
                **self._variables(self._files("gateway")),
            },
            log=directory / "gateway.log",
            ready=lambda: listens_on(self.gateway_port),
        )

    def set_variables(self, process: Process, variables: dict[str, str]) -> None:
        for name, value in variables.items():
            process.set(name, value)

    @property
    def serves(self) -> bool:
        return listens_on(self._scheduler_port)

    def claims(self) -> Claims:
        return read_claims(self.scheduler_files.certificate.read_bytes())

    def admin_client(self) -> SchedulerClient:
        trust = Trust(self.admin_files())
        return SchedulerClient(self.target, timeout=timedelta(seconds=30), trust=trust)

    def admin_files(self) -> CertificateFiles:
        """The files of an admin, with a certificate of this Vault."""
        created = self._server.read(
            "vault write pki/issue/persys-admin common_name=ada "
            "uri_sans=spiffe://persys.local/admin/ada ttl=8h"
        )["data"]
        files = self._files("ada")
        write_files(
            [
                (files.certificate, created["certificate"].encode(), PUBLIC),
                (files.key, created["private_key"].encode(), PRIVATE),
                (files.roots, created["issuing_ca"].encode(), PUBLIC),
            ]
        )
        return files

    def wait_until_ready(self, client: SchedulerClient) -> None:
        eventually(
            lambda: [node.node_id for node in client.list_nodes(status="Ready")] == [self.node_id],
            lambda: f"the node to be ready\n{self.scheduler.log[-2000:]}\n{self.agent.log[-2000:]}",
        )

    def wait_for_log(self, process: Process, *words: str) -> str:
        """The first line that contains all of them."""
        found: list[str] = []

        def is_logged() -> bool:
            found[:] = [
                line for line in process.log.splitlines() if all(word in line for word in words)
            ]
            return bool(found)

        eventually(is_logged, lambda: f"{words} in\n{process.log[-4000:]}")
        return found[0]

    def close(self) -> None:
        self.gateway.close()
        self.agent.close()
        self.scheduler.close()

    def _files(self, name: str) -> CertificateFiles:
        place = self._directory / name
        return CertificateFiles(place / "a.crt", place / "a.key", place / "ca.crt")

    def _variables(self, files: CertificateFiles) -> dict[str, str]:
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
            "PERSYS_VAULT_ENABLED": "true",
            "PERSYS_VAULT_ADDR": self._server.address,
            "PERSYS_VAULT_RETRY_INTERVAL": "500ms",
        }
