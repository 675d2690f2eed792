"""A scheduler that is killed at each step of the life of a machine. The provider is outside of it.

No machine is lost, none is created twice, and the spend stays within the limit of the pool.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from e2e.cluster import BIN, Cluster
from e2e.process import Process, free_port
from e2e.waiting import eventually
from persys.errors import NotFoundError, UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb

PRICE = 0.1
REGION = "eu-west-1"
STEP_SECONDS = 120
# A machine that was stored and not created is dropped after the deadline, and the next one after a back-off.
DEADLINE_SECONDS = 60
RETRY_SECONDS = 240
# The verb is the name of the program. It kills the scheduler if the test has written its process id.
PROGRAM = """#!{python}
import json, os, sys
from pathlib import Path
folder = Path({folder!r})
request = json.load(sys.stdin)
answer = {{}}
match Path(sys.argv[0]).name:
    case "create":
        with (folder / "created").open("a") as log:
            log.write(request["name"] + "\\n")
        (folder / "machines" / request["name"]).write_text(json.dumps(request["tags"]))
        if (folder / "kill").exists():
            pid = int((folder / "kill").read_text())
            (folder / "kill").unlink()
            os.kill(pid, 9)
        answer = {{"provider_id": request["name"]}}
    case "destroy":
        name = request["provider_id"] or request["name"]  # without an id if create was interrupted
        (folder / "machines" / name).unlink(missing_ok=True)
    case "list":
        answer = {{"instances": [
            {{"provider_id": path.name, "name": path.name, "tags": json.loads(path.read_text())}}
            for path in (folder / "machines").iterdir()
        ]}}
print(json.dumps(answer))
"""


class Cloud(Protocol):
    """A provider that survives the scheduler."""

    variables: dict[str, str]  # of the scheduler

    def spec(self) -> pb.NodePoolSpec: ...

    def existing(self) -> list[str]:
        """The names of the machines that cost now."""

    def created(self) -> list[str]:
        """The names in all create calls that created a machine."""


class ExecCloud:
    def __init__(self, folder: Path, verbs: tuple[str, ...]) -> None:
        self._folder = folder
        self.machines = folder / "machines"
        self.machines.mkdir()
        programs = folder / "programs" / "lab"
        programs.mkdir(parents=True)
        for verb in verbs:
            path = programs / verb
            path.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
            path.chmod(0o755)
        self.variables = {"PERSYS_PROVIDER_PROGRAMS": str(programs.parent)}

    def spec(self) -> pb.NodePoolSpec:
        return pb.NodePoolSpec(provider="exec", options={"programs": "lab"})

    def existing(self) -> list[str]:
        return [path.name for path in self.machines.iterdir()]

    def created(self) -> list[str]:
        log = self._folder / "created"
        return log.read_text().split() if log.exists() else []

    def kill_during_create(self, pid: int) -> None:
        (self._folder / "kill").write_text(str(pid))


class MotoCloud:
    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._client = boto3.client(
            "ec2",
            region_name=REGION,
            endpoint_url=endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def spec(self) -> pb.NodePoolSpec:
        return pb.NodePoolSpec(
            provider="ec2",
            region=REGION,
            image="ami-12c6146b",
            options={"endpoint": self._endpoint},
        )

    def existing(self) -> list[str]:
        return [name for name, state in self._all() if state != "terminated"]

    def created(self) -> list[str]:
        return [name for name, _ in self._all()]

    def _all(self) -> list[tuple[str, str]]:
        """Terminated ones stay in the list."""
        return [
            (
                next(tag["Value"] for tag in one["Tags"] if tag["Key"] == "Name"),
                one["State"]["Name"],
            )
            for reservation in self._client.describe_instances()["Reservations"]
            for one in reservation["Instances"]
        ]


class KilledScheduler:
    """A scheduler with a pool. It is started again with a failpoint for the next step."""

    def __init__(self, cluster: Cluster, cloud: Cloud, *, count: int) -> None:
        self.cluster = cluster
        self.cloud = cloud
        self._count = count
        self.pool_id = f"k{uuid4().hex[:6]}"
        self._agents: dict[str, Process] = {}

    def create_pool(self) -> None:
        spec = self.cloud.spec()
        spec.pool_id = self.pool_id
        spec.sizes.add(
            name="t3.small", cpu_millicores=1000, memory_mb=512, disk_gb=1, hour_price=PRICE
        )
        spec.min, spec.max = self._count, self._count + 2  # the limit of the spend is lower
        spec.spend_per_hour_max = self._count * PRICE
        spec.provision_deadline_seconds = DEADLINE_SECONDS
        self.cluster.client.create_node_pool(spec)

    def start(self, failpoint: str = "") -> None:
        self.cluster.scheduler.set("PERSYS_FAILPOINT", failpoint)
        self.cluster.scheduler.launch()

    def wait_until_killed(self, where: str, *, within: float = STEP_SECONDS) -> None:
        eventually(
            lambda: self.check() and not self.cluster.scheduler.runs,
            lambda: f"killed at {where}: {self.shown()}",
            within=within,
        )

    def check(self) -> bool:
        """What holds at every moment. Machines that were destroyed lose their agents."""
        existing, created = self.cloud.existing(), self.cloud.created()
        assert len(existing) <= self._count, f"{existing} exceed the limit of the spend"
        assert len(created) == len(set(created)), f"a machine was created twice: {created}"
        for name in self._agents.keys() - set(existing):
            self._agents.pop(name).kill()
        return True

    def join(self, name: str) -> None:
        """The machine boots: its agent registers."""
        agent = Process(
            [str(BIN / "persys-agent"), "-insecure"],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(free_port()),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_NODE_ID": name,
                "PERSYS_STATE_PATH": str(self.cluster.directory / f"{name}.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(self.cluster.directory / name),
                "PERSYS_SCHEDULER_ADDR": self.cluster.target,
            },
            log=self.cluster.directory / f"{name}.log",
            ready=lambda: True,
        )
        agent.start()
        self._agents[name] = agent

    def machines(self) -> dict[str, str]:
        """The state of each machine with a record. Empty without a pool or a scheduler."""
        try:
            pool = self.cluster.client.get_node_pool(self.pool_id)
        except (NotFoundError, UnavailableError):
            return {}
        return {machine.name: machine.state for machine in pool.machines}

    def wait_for(self, states: list[str], *, within: float = STEP_SECONDS) -> None:
        eventually(
            lambda: self.check() and sorted(self.machines().values()) == states,
            lambda: f"{states}: {self.shown()}",
            within=within,
        )

    def wait_until_dropped(self) -> None:
        eventually(self._is_dropped, self.shown, within=STEP_SECONDS)
        assert self.cloud.existing() == []

    def _is_dropped(self) -> bool:
        self.check()
        try:
            return not self.cluster.client.list_node_pools()
        except UnavailableError:
            return False

    def shown(self) -> str:
        found = {"existing": self.cloud.existing(), "created": self.cloud.created()}
        return f"{json.dumps(found)} {self.machines()} {self.cluster.scheduler.log[-3000:]}"

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()


Make = Callable[..., KilledScheduler]


@pytest.fixture
def new_scheduler(new_cluster: Callable[..., Cluster]) -> Iterator[Make]:
    made: list[KilledScheduler] = []

    def make(cloud: Cloud, *, count: int) -> KilledScheduler:
        settings = {
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_RECONCILE_INTERVAL": "1s",
            **cloud.variables,
        }
        made.append(KilledScheduler(new_cluster(scheduler=settings), cloud, count=count))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(params=["exec", "exec without list", "ec2"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    if request.param != "ec2":
        listed = ("list",) if request.param == "exec" else ()
        yield ExecCloud(tmp_path, ("create", "destroy", *listed))
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield MotoCloud(f"http://{host}:{port}")
    server.stop()


def test_a_kill_between_create_and_record_loses_no_machine(
    new_scheduler: Make, tmp_path: Path
) -> None:
    killed = new_scheduler(ExecCloud(tmp_path, ("create", "destroy", "list")), count=1)
    killed.cluster.scheduler.set("PERSYS_FAILPOINT", "nodepool-machine-created")
    killed.cluster.scheduler.start()
    killed.create_pool()
    killed.wait_until_killed("nodepool-machine-created")

    killed.start()

    killed.wait_for(["booting"])
    assert killed.cloud.created() == list(killed.machines())


@pytest.mark.full
@pytest.mark.parametrize("verbs", [(), ("list",)], ids=["without list", "with list"])
def test_a_kill_while_a_program_creates_a_machine_loses_no_machine(
    new_scheduler: Make, tmp_path: Path, verbs: tuple[str, ...]
) -> None:
    cloud = ExecCloud(tmp_path, ("create", "destroy", *verbs))
    killed = new_scheduler(cloud, count=1)
    killed.cluster.scheduler.start()
    cloud.kill_during_create(killed.cluster.scheduler.pid)
    killed.create_pool()
    killed.wait_until_killed("create")

    killed.start()

    killed.wait_for(["booting"])
    killed.cluster.client.delete_node_pool(killed.pool_id)
    killed.wait_until_dropped()


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_kill_at_every_step_loses_no_machine_and_pays_for_none_twice(
    new_scheduler: Make, cloud: Cloud
) -> None:
    killed = new_scheduler(cloud, count=2)

    killed.cluster.scheduler.set("PERSYS_FAILPOINT", "nodepool-stored@MachineCreated")
    killed.cluster.scheduler.start()
    killed.create_pool()
    killed.wait_until_killed("MachineCreated")
    (first,) = cloud.existing()
    killed.join(first)
    for failpoint in ("nodepool-stored@MachineCreating", "nodepool-machine-created"):
        killed.start(failpoint)
        killed.wait_until_killed(failpoint, within=RETRY_SECONDS)
    (second,) = set(cloud.existing()) - {first}
    killed.join(second)
    killed.start("nodepool-stored@MachineReady")
    killed.wait_until_killed("MachineReady")
    killed.start()
    killed.wait_for(["ready", "ready"])
    killed.cluster.scheduler.kill()

    killed.start("nodepool-node-drained")
    eventually(lambda: bool(killed.machines()), "the scheduler answers")
    killed.cluster.client.delete_node_pool(killed.pool_id)
    killed.wait_until_killed("nodepool-node-drained")
    for failpoint in (
        "nodepool-stored@MachineDraining",
        "nodepool-stored@MachineDestroying",
        "nodepool-machine-destroyed",
        "nodepool-node-removed",
        "nodepool-stored@MachineRemoved",
    ):
        killed.start(failpoint)
        killed.wait_until_killed(failpoint)
    killed.start()

    killed.wait_until_dropped()
    assert cloud.created() == [first, second]
    assert not killed.cluster.client.list_nodes()
