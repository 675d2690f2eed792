"""A node pool of the provider `exec`, whose programs start real agents on this host."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.cluster import BIN, Cluster, a_container
from e2e.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")

TESTS = Path(__file__).parents[1]
GROW_SECONDS = 120
SHRINK_SECONDS = 240
# The verb is the name of the program.
PROGRAM = """#!{python}
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from e2e.machine import BootedMachine
machines = Path({machines!r})
request = json.load(sys.stdin)
match Path(sys.argv[0]).name:
    case "create":
        folder = machines / request["name"]
        folder.mkdir()
        ports = {{"PERSYS_GRPC_ADDR": "127.0.0.1", "PERSYS_GRPC_PORT": "0", "PERSYS_METRICS_PORT": "0"}}
        done = BootedMachine(folder, request["user_data"], ports).boot()
        if done.returncode:
            sys.exit(done.stderr)
        (folder / "tags.json").write_text(json.dumps(request["tags"]))
        answer = {{"provider_id": request["name"]}}
    case "destroy":
        folder = machines / request["provider_id"]
        if folder.exists():
            BootedMachine(folder, (folder / "user-data").read_text(), {{}}).terminate()
            (folder / "tags.json").unlink()
        answer = {{}}
    case "list":
        found = {{path.parent.name: json.loads(path.read_text()) for path in machines.glob("*/tags.json")}}
        answer = {{"instances": [
            {{"provider_id": name, "name": name, "tags": tags}} for name, tags in found.items()
        ]}}
print(json.dumps(answer))
"""
POOL = """kind: nodepool
pool_id: {pool_id}
provider: exec
sizes:
  - {{name: small, cpu_millicores: 1000, memory_mb: 512, disk_gb: 1, hour_price: 0.05}}
max: 2
spend_per_hour_max: 0.1
idle_after: 1m
labels: {{pool: {pool_id}}}
options: {{programs: lab}}
"""


class PooledCluster:
    """A cluster whose own node is nearly full, and a pool."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.machines = folder / "machines"
        self.machines.mkdir()
        self._folder = folder
        programs = folder / "programs" / "lab"
        programs.mkdir(parents=True)
        text = PROGRAM.format(python=sys.executable, tests=str(TESTS), machines=str(self.machines))
        for verb in ("create", "destroy", "list"):
            (programs / verb).write_text(text)
            (programs / verb).chmod(0o755)
        self.pool_id = (
            f"b{uuid4().hex[:8]}"  # the containers of its nodes are on the Docker of all tests
        )
        (folder / "pool.yaml").write_text(POOL.format(pool_id=self.pool_id))

    def ctl(self, *words: str) -> str:
        done = subprocess.run(
            [BIN / "persysctl", "--scheduler", self.cluster.target, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._folder),
                "PERSYS_INSECURE": "true",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create_pool(self) -> None:
        self.ctl("nodepool", "create", "-f", str(self._folder / "pool.yaml"))

    def nodes(self) -> dict[str, str]:
        """The status of each node of the pool."""
        nodes = self.cluster.client.list_nodes()
        return {
            node.node_id: node.status for node in nodes if node.labels.get("pool") == self.pool_id
        }

    def existing(self) -> list[str]:
        return sorted(path.parent.name for path in self.machines.glob("*/tags.json"))

    def shown(self) -> str:
        logs = {
            path.parent.name: path.read_text()[-2000:] for path in self.machines.glob("*/agent.log")
        }
        return f"{self.ctl('nodepool', 'get', self.pool_id, '-o', 'json')} {json.dumps(logs)}"

    def grow_for(self, workload_id: str, image: str) -> str:
        """Returns the new node when the workload runs on it."""
        spec = a_container(image, "sleep", "600", cpu=500)
        self.cluster.apply(workload_id, spec)
        self.create_pool()  # after it: a pool without workloads that wait is inspected rarely
        eventually(
            lambda: self.cluster.status(workload_id) == "Running", self.shown, within=GROW_SECONDS
        )
        node_id = self.cluster.client.get_workload(workload_id).assigned_node_id
        assert self.nodes() == {node_id: "Ready"}
        assert self.existing() == [node_id]
        return node_id


@pytest.fixture
def pooled(new_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[PooledCluster]:
    cluster = new_cluster(
        scheduler={
            "PERSYS_OFFLOAD_AFTER": "1s",
            "PERSYS_PROVIDER_PROGRAMS": str(tmp_path / "programs"),
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
        },
        agent={"PERSYS_SYSTEM_RESERVE_CPU_MILLICORES": cores_but_one_tenth()},
    )
    made = PooledCluster(cluster, tmp_path)
    cluster.start()
    yield made
    for name in made.existing():
        destroy = made.machines.parent / "programs" / "lab" / "destroy"
        content = json.dumps({"provider_id": name})
        subprocess.run([destroy], input=content, text=True, timeout=60, check=True)


def cores_but_one_tenth() -> str:
    return str(1000 * (os.cpu_count() or 1) - 100)


def test_a_pool_grows_by_a_real_node_and_ends_with_it(
    pooled: PooledCluster, unique_id: str, demo_image: str
) -> None:
    pooled.grow_for(unique_id, demo_image)

    pooled.cluster.client.delete(unique_id)
    pooled.cluster.wait_until_gone([unique_id])
    pooled.ctl("nodepool", "delete", pooled.pool_id)

    eventually(lambda: pooled.existing() == [], pooled.shown, within=SHRINK_SECONDS)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_an_idle_pool_shrinks(pooled: PooledCluster, unique_id: str, demo_image: str) -> None:
    pooled.grow_for(unique_id, demo_image)

    pooled.cluster.client.delete(unique_id)

    eventually(lambda: pooled.existing() == [], pooled.shown, within=SHRINK_SECONDS)
    eventually(lambda: pooled.nodes() == {}, "the node is removed", within=SHRINK_SECONDS)
