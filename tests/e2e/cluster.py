"""A real scheduler and agent as processes on the real Docker, with the operations of tests."""

import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from e2e import containers
from e2e.containers import Container
from e2e.process import Process, free_port, listens_on
from e2e.waiting import DEADLINE_SECONDS, eventually
from persys.client import AgentClient, SchedulerClient
from persys.errors import NotFoundError, UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb

BIN = Path(sys.executable).parent
# Enough for parallel work, few enough that a kill interrupts it.
APPLIES_AT_ONCE = 8


def a_container(
    image: str,
    *command: str,
    cpu: int = 30,
    metadata: Mapping[str, str] | None = None,
    placement: pb.PlacementRules | None = None,
) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=16),
        container=pb.ContainerSpec(image=image, command=command, init=True),
        metadata=metadata,
        placement=placement,
    )


class Cluster:
    """One scheduler and one agent with their own names, ports and files."""

    def __init__(
        self,
        directory: Path,
        *,
        scheduler: Mapping[str, str] | None = None,
        agent: Mapping[str, str] | None = None,
        agent_under: Sequence[str] = (),
    ) -> None:
        """`agent_under` is a command that runs the agent, such as nice."""
        self._agent_under = agent_under
        self.node_id = f"e2e-{uuid.uuid4().hex[:8]}"
        self.directory = directory
        self.volumes = directory / "volumes"
        self.scheduler_port, self.agent_port = free_port(), free_port()
        self.metrics_port = free_port()
        self.target = f"127.0.0.1:{self.scheduler_port}"
        self.scheduler = Process(
            [str(BIN / "persys-scheduler"), "-insecure"],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(self.scheduler_port),
                "METRICS_PORT": str(self.metrics_port),
                "PERSYS_STORE": f"sqlite:{directory / 'scheduler.db'}",
                **(scheduler or {}),
            },
            log=directory / "scheduler.log",
            ready=self._answers,
        )
        self._others: list[tuple[str, Process]] = []
        self.agent = self._agent(self.node_id, self.agent_port, agent or {})
        self.client = SchedulerClient(self.target, timeout=timedelta(seconds=30))

    def start(self) -> None:
        """Returns when the node is ready."""
        self.scheduler.start()
        self.agent.start()
        self.wait_until_node_is("Ready")

    def add_node(self, **settings: str) -> str:
        """One more agent on the same Docker. Returns its node id when it is ready."""
        node_id = f"{self.node_id}-{len(self._others) + 2}"
        agent = self._agent(node_id, free_port(), settings)
        self._others.append((node_id, agent))
        agent.start()
        self.wait_until_node_is("Ready", node_id=node_id)
        return node_id

    def close(self) -> None:
        self.client.close()
        self.scheduler.close()
        for node_id, agent in [(self.node_id, self.agent), *self._others]:
            agent.close()
            containers.remove(containers.container_ids(node_id))
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if (at := line.split()[4]).startswith(f"{self.directory}/"):
                subprocess.run(["umount", at], check=True)

    def logs(self) -> dict[str, str]:
        others = {node_id: agent.log for node_id, agent in self._others}
        return {"scheduler": self.scheduler.log, "agent": self.agent.log, **others}

    # Requests of a user.

    def apply(self, workload_id: str, spec: pb.WorkloadSpec, *, revision: str = "") -> str:
        return self.client.apply(
            pb.ApplyWorkloadRequest(workload_id=workload_id, spec=spec, revision_id=revision)
        )

    def apply_all(self, workload_ids: Sequence[str], spec: pb.WorkloadSpec) -> None:
        with ThreadPoolExecutor(APPLIES_AT_ONCE) as pool:
            list(pool.map(lambda workload_id: self.apply(workload_id, spec), workload_ids))

    def delete_all(self, workload_ids: Sequence[str]) -> None:
        with ThreadPoolExecutor(APPLIES_AT_ONCE) as pool:
            list(pool.map(self.client.delete, workload_ids))

    def run_all(self, workload_ids: Sequence[str], spec: pb.WorkloadSpec) -> list[Container]:
        """Apply and wait until they run."""
        self.apply_all(workload_ids, spec)
        self.wait_for_all(workload_ids, "Running")
        return self.containers(workload_ids)

    # Views of the scheduler.

    def statuses(self) -> dict[str, str]:
        return {view.workload_id: view.status for view in self.client.list_workloads()}

    def status(self, workload_id: str) -> str:
        return self.client.get_workload(workload_id).status

    def knows(self, workload_id: str) -> bool:
        try:
            self.client.get_workload(workload_id)
        except NotFoundError:
            return False
        return True

    def node(self) -> pb.NodeView:
        return self.client.get_node(self.node_id)

    def metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            found = re.search(rf"^{name} (\S+)$", response.read().decode(), re.MULTILINE)
        assert found is not None, f"{name} is not among the metrics"
        return float(found[1])

    def agent_client(self) -> AgentClient:
        return AgentClient(f"127.0.0.1:{self.agent_port}")

    # Waiting.

    def wait_for(
        self, workload_id: str, status: str, *, within: float = DEADLINE_SECONDS
    ) -> pb.WorkloadView:
        eventually(
            lambda: self.status(workload_id) == status,
            lambda: f"{status}, but is {self.client.get_workload(workload_id)}",
            within=within,
        )
        return self.client.get_workload(workload_id)

    def wait_for_all(
        self, workload_ids: Iterable[str], status: str, *, within: float = 2 * DEADLINE_SECONDS
    ) -> None:
        wanted = dict.fromkeys(workload_ids, status)
        eventually(
            lambda: wanted.items() <= self.statuses().items(),
            lambda: f"{status}, but are {dict(self.statuses().items() - wanted.items())}",
            within=within,
        )

    def wait_until_gone(
        self, workload_ids: Iterable[str], *, within: float = 2 * DEADLINE_SECONDS
    ) -> None:
        gone = set(workload_ids)
        eventually(
            lambda: not gone & self.statuses().keys(),
            lambda: f"gone, but there are {self.statuses()}",
            within=within,
        )

    def wait_until_node_is(self, status: str, *, node_id: str = "") -> None:
        def has_status() -> bool:
            nodes = {node.node_id: node.status for node in self.client.list_nodes()}
            return nodes.get(node_id or self.node_id) == status

        eventually(has_status, f"node {status}")

    # State of Docker.

    def containers(self, workload_ids: Iterable[str] = ()) -> list[Container]:
        """Sorted by name: all of this node, or those of the given workloads."""
        wanted = set(workload_ids)
        found = containers.inspect(containers.container_ids(self.node_id))
        return sorted(one for one in found if not wanted or one.workload_id in wanted)

    def container(self, workload_id: str) -> Container:
        (only,) = containers.inspect(containers.container_ids(self.node_id, workload_id))
        return only

    def _answers(self) -> bool:
        """Whether the client is connected again; after a refusal it retries only at intervals."""
        try:
            self.client.get_summary()
        except UnavailableError:
            return False
        return True

    def _agent(self, node_id: str, port: int, settings: Mapping[str, str]) -> Process:
        return Process(
            [*self._agent_under, str(BIN / "persys-agent"), "-insecure"],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(port),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_NODE_ID": node_id,
                "PERSYS_STATE_PATH": str(self.directory / f"{node_id}.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(self.volumes),
                "PERSYS_VM_IMAGES_DIR": str(self.directory / f"{node_id}-images"),
                "PERSYS_SCHEDULER_ADDR": self.target,
                **settings,
            },
            log=self.directory / f"{node_id}.log",
            ready=lambda: listens_on(port),
        )
