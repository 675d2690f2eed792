"""A real persys-agent on the real Docker, driven over gRPC as a scheduler would."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.waiting import pause_after
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc

DEADLINE_SECONDS = 60.0
START_SECONDS = 60.0  # a dozen may start at once on a busy machine
PENDING = agent_pb2.ACTUAL_STATE_PENDING
RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
FAILED = agent_pb2.ACTUAL_STATE_FAILED
UNKNOWN = agent_pb2.ACTUAL_STATE_UNKNOWN


def docker(*arguments: str) -> str:
    result = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()


def eventually(holds: Callable[[], bool], what: str, *, within: float = DEADLINE_SECONDS) -> None:
    checked_at = time.monotonic()
    deadline = checked_at + within
    while not holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(pause_after(time.monotonic() - checked_at))
        checked_at = time.monotonic()


def mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [at for line in lines if (at := line.split()[4]).startswith(f"{directory}/")]


class Agent:
    """One agent with a journal of its own. It can be killed and started again."""

    def __init__(self, directory: Path, *flags: str, **environment: str) -> None:
        self.node_id = f"node-{uuid.uuid4().hex[:8]}"
        self.directory = directory
        self.volumes = directory / "volumes"
        self._flags = flags or ("-standalone", "-insecure")
        self._environment = {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_GRPC_PORT": "0",
            "PERSYS_METRICS_PORT": "0",
            "PERSYS_NODE_ID": self.node_id,
            "PERSYS_STATE_PATH": str(directory / "state.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(self.volumes),
            "PERSYS_VM_IMAGES_DIR": str(directory / "images"),
            "PERSYS_VM_ENABLED": "false",  # unless the test is about machines
            "PERSYS_STOP_GRACE": "1s",
            **environment,
        }
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    def start(self, *, failpoint: str = "") -> None:
        self._log.write_bytes(b"")
        environment = os.environ | self._environment | {"PERSYS_FAILPOINT": failpoint}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).parent / "persys-agent", *self._flags],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(
            lambda: bool(self.logged("agent.serving")) or self.is_dead,
            "agent serves",
            within=START_SECONDS,
        )
        assert not self.is_dead, self._log.read_text()
        self.port: int = self.logged("agent.serving")[0]["port"]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = agent_pb2_grpc.AgentServiceStub(self._channel)

    def set(self, name: str, value: str) -> None:
        """Set an environment variable for the next start."""
        self._environment[name] = value

    @property
    def is_dead(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def wait_until_dead(self) -> None:
        eventually(lambda: self.is_dead, "the agent dies")
        self._end(signal.SIGKILL)

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in found if line.get("event") == event]

    def apply(
        self,
        workload_id: str,
        container: agent_pb2.ContainerSpec,
        *,
        revision: str = "r1",
        desired: agent_pb2.DesiredState = agent_pb2.DESIRED_STATE_RUNNING,
        epoch: int = 0,
        stop_after: int = 0,
        run_once: bool = False,
        run_deadline: int = 0,
    ) -> agent_pb2.ApplyWorkloadResponse:
        request = agent_pb2.ApplyWorkloadRequest(
            id=workload_id,
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id=revision,
            desired_state=desired,
            spec=agent_pb2.WorkloadSpec(container=container),
            epoch=epoch,
            stop_after_seconds=stop_after,
            run_once=run_once,
            run_deadline_seconds=run_deadline,
        )
        response: agent_pb2.ApplyWorkloadResponse = self.stub.ApplyWorkload(request, timeout=10)
        return response

    def delete(
        self, workload_id: str, *, epoch: int = 0, keep_data: bool = False
    ) -> agent_pb2.DeleteWorkloadResponse:
        request = agent_pb2.DeleteWorkloadRequest(id=workload_id, epoch=epoch, keep_data=keep_data)
        response: agent_pb2.DeleteWorkloadResponse = self.stub.DeleteWorkload(request, timeout=10)
        return response

    def status(self, workload_id: str) -> agent_pb2.WorkloadStatus:
        request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
        status: agent_pb2.WorkloadStatus = self.stub.GetWorkloadStatus(request, timeout=10).status
        return status

    def knows(self, workload_id: str) -> bool:
        listed = self.stub.ListWorkloads(agent_pb2.ListWorkloadsRequest(), timeout=10)
        return workload_id in {status.id for status in listed.workloads}

    def wait_for(
        self, workload_id: str, actual: agent_pb2.ActualState, *, within: float = DEADLINE_SECONDS
    ) -> agent_pb2.WorkloadStatus:
        deadline = time.monotonic() + within
        while (status := self.status(workload_id)).actual_state != actual:
            assert time.monotonic() < deadline, f"not within {within} s: {status}"
            time.sleep(0.05)
        return status

    def wait_until_gone(self, workload_id: str) -> None:
        eventually(lambda: not self.knows(workload_id), f"{workload_id} is gone")

    def containers(self, workload_id: str = "", *, running: bool = False) -> list[str]:
        filters = ["--filter", f"label=persys.node_id={self.node_id}"]
        if workload_id:
            filters += ["--filter", f"label=persys.workload_id={workload_id}"]
        return docker("ps", "--no-trunc", "-q", *([] if running else ["-a"]), *filters).split()

    def inside(self, workload_id: str, *command: str) -> str:
        (container,) = self.containers(workload_id)
        return docker("exec", container, *command)

    def cpu_seconds(self) -> float:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def is_idle(self) -> bool:
        """Whether the process used almost no CPU time for a moment."""
        before = self.cpu_seconds()
        time.sleep(0.5)
        return self.cpu_seconds() - before < 0.05

    def close(self) -> None:
        if self._process is not None and not self.is_dead:
            self.kill()
        for container in self.containers():
            subprocess.run(["docker", "rm", "-f", container], capture_output=True, check=False)
        for mount in mounts_below(self.volumes):
            subprocess.run(["umount", mount], check=True)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._process.send_signal(number)
        return self._process.wait(timeout=DEADLINE_SECONDS)


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent for tests that do not change it. It relies on events: the periodic pass never runs."""
    shared = Agent(tmp_path_factory.mktemp("agent"), PERSYS_RECONCILE_INTERVAL="1h")
    shared.start()
    yield shared
    shared.close()


@pytest.fixture
def new_agent(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Creates agents for tests that kill them. They are not started yet."""
    created: list[Agent] = []

    def make(*flags: str, **environment: str) -> Agent:
        directory = tmp_path / f"agent-{len(created)}"
        directory.mkdir()
        created.append(Agent(directory, *flags, **environment))
        return created[-1]

    yield make
    for each in created:
        each.close()


@pytest.fixture
def sleeper(demo_image: str) -> agent_pb2.ContainerSpec:
    return agent_pb2.ContainerSpec(image=demo_image, command=["sleep", "3600"], init=True)


@pytest.fixture
def shell(demo_image: str) -> Callable[..., agent_pb2.ContainerSpec]:
    """A container that runs a line of shell, under a restart policy."""

    def make(line: str, *, restart: str = "no", retries_max: int = 0) -> agent_pb2.ContainerSpec:
        return agent_pb2.ContainerSpec(
            image=demo_image,
            command=["sh", "-c", line],
            restart_policy=agent_pb2.RestartPolicy(policy=restart, max_retry_count=retries_max),
        )

    return make


@pytest.fixture(scope="session")
def run_docker() -> Callable[..., str]:
    """Runs the docker command."""
    return docker


@pytest.fixture(scope="session")
def agent_in() -> Callable[[Path], Agent]:
    """Creates an agent with all its state in the given directory. The caller closes it."""
    return Agent
