"""A real agent and a real scheduler with TLS, while the agent's certificate is replaced."""

import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.model.identity import Role
from root_ca import Root

BIN = Path(sys.executable).parent


class SecureCluster:
    def __init__(self, directory: Path) -> None:
        self.root = Root(directory / "certs")
        self.node_id = f"tls-{uuid.uuid4().hex[:8]}"
        self.files = self.root.write(Role.AGENT, self.node_id)
        scheduler_port, agent_port = free_port(), free_port()
        self.target = f"127.0.0.1:{scheduler_port}"
        self.scheduler = Process(
            [str(BIN / "persys-scheduler")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(scheduler_port),
                "METRICS_PORT": str(free_port()),
                "PERSYS_STORE": f"sqlite:{directory / 'scheduler.db'}",
                "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
                **self.root.variables(self.root.write(Role.SCHEDULER, "s1")),
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
                "PERSYS_DOCKER_ENABLED": "false",
                "PERSYS_STATE_PATH": str(directory / "agent.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
                "PERSYS_SCHEDULER_ADDR": self.target,
                **self.root.variables(self.files),
            },
            log=directory / "agent.log",
            ready=lambda: listens_on(agent_port),
        )

    def is_ready(self, client: SchedulerClient) -> bool:
        """The node has the name of its certificate, because no setting names it."""
        return [node.node_id for node in client.list_nodes(status="Ready")] == [self.node_id]


@pytest.fixture
def secure_cluster(tmp_path: Path) -> Iterator[SecureCluster]:
    created = SecureCluster(tmp_path)
    try:
        created.scheduler.start()
        created.agent.start()
        yield created
    finally:
        created.agent.close()
        created.scheduler.close()


def test_an_agent_changes_its_certificate_without_losing_the_scheduler(
    secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    trust = Trust(secure_cluster.root.write(Role.ADMIN, "me"))
    with SchedulerClient(
        secure_cluster.target, timeout=timedelta(seconds=10), trust=trust
    ) as client:
        eventually(lambda: secure_cluster.is_ready(client), "the node to be ready")

        secure_cluster.root.write(Role.AGENT, secure_cluster.node_id)
        eventually(lambda: "scheduler.moved" in secure_cluster.agent.log, "the agent to move")

        # Of another CA: the scheduler refuses it, so the agent keeps the old one.
        Root(tmp_path / "certs").write(
            Role.AGENT, secure_cluster.node_id, roots=secure_cluster.root.pem
        )
        eventually(lambda: "scheduler.not_moved" in secure_cluster.agent.log, "the agent to stay")
        assert secure_cluster.is_ready(client)

        secure_cluster.files.certificate.write_text("garbage")
        eventually(lambda: "certificate.kept" in secure_cluster.agent.log, "garbage to be refused")

        secure_cluster.root.write(Role.AGENT, secure_cluster.node_id)
        moves = '"event": "scheduler.moved"'
        eventually(
            lambda: secure_cluster.agent.log.count(moves) == 2, "the agent to move again", within=60
        )
        assert secure_cluster.is_ready(client)
    assert "scheduler.lost" not in secure_cluster.agent.log
