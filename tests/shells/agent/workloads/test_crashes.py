"""kill -9 at any time loses no accepted order, and restarts no running container."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.agent.workloads import failpoints
from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
CONCURRENT_CASES = 5


class CrashCase:
    """Apply, update, stop and delete one workload; the agent crashes at the failpoint.

    After the crash only the deletion is still performed; the other steps are covered elsewhere.
    """

    def __init__(self, agent: "Agent", spec: agent_pb2.ContainerSpec) -> None:
        self.agent = agent
        self._spec = agent_pb2.ContainerSpec()
        self._spec.CopyFrom(spec)
        self._spec.managed_volumes.add(name="data", mount_path="/data")
        self.crashes = 0
        self.containers: dict[str, list[str]] = {}

    def run(self, point: str) -> "CrashCase":
        self.agent.start(failpoint=point)
        self._stage("applied", lambda: self._order("r1"), lambda: self._settles(RUNNING))
        self._spec.env["NEW"] = "revision"
        self._stage("updated", lambda: self._order("r2"), lambda: self._settles(RUNNING))
        stop = agent_pb2.DESIRED_STATE_STOPPED
        self._stage("stopped", lambda: self._order("r2", stop), lambda: self._settles(STOPPED))
        self._stage("deleted", self._delete, lambda: self.agent.wait_until_gone("crashing"))
        return self

    def _stage(self, name: str, order: Callable[[], None], settle: Callable[[], None]) -> None:
        if self.crashes and name != "deleted":
            return
        try:
            order()
            settle()
            self._check_alive()
        except grpc.RpcError:
            self.agent.wait_until_dead()
            self.crashes += 1
            self.agent.start()
            order()  # a caller without a response retries
            settle()
        self.containers[name] = self.agent.containers("crashing")

    def _check_alive(self) -> None:
        """A response after it has settled: a crash at the very end is noticed in this stage."""
        self.agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)

    def _order(
        self, revision: str, desired: agent_pb2.DesiredState = agent_pb2.DESIRED_STATE_RUNNING
    ) -> None:
        self.agent.apply("crashing", self._spec, revision=revision, desired=desired)

    def _settles(self, actual: agent_pb2.ActualState) -> None:
        self.agent.wait_for("crashing", actual)

    def _delete(self) -> None:
        self.agent.delete("crashing")


@pytest.fixture(scope="module")
def crash_cases(
    agent_in: "Callable[[Path], Agent]",
    tmp_path_factory: pytest.TempPathFactory,
    demo_image: str,
) -> Iterator[dict[str, Future[CrashCase]]]:
    """One case per failpoint, several run concurrently."""
    spec = agent_pb2.ContainerSpec(image=demo_image, command=["sleep", "3600"], init=True)
    cases = {
        point: CrashCase(agent_in(tmp_path_factory.mktemp("crash")), spec)
        for point in failpoints.ALL
    }
    with ThreadPoolExecutor(CONCURRENT_CASES) as pool:
        yield {point: pool.submit(case.run, point) for point, case in cases.items()}
    for case in cases.values():
        case.agent.close()


@pytest.mark.parametrize("point", failpoints.ALL)
def test_a_crash_at_a_failpoint_loses_and_duplicates_nothing(
    point: str, crash_cases: dict[str, Future[CrashCase]]
) -> None:
    case = crash_cases[point].result(timeout=120)

    assert case.crashes == 1
    assert case.containers.pop("deleted") == []
    assert {len(found) for found in case.containers.values()} == {1}
    if "updated" in case.containers:
        assert case.containers["updated"] != case.containers["applied"]
    if "stopped" in case.containers:
        assert case.containers["stopped"] == case.containers["updated"]
    assert not (case.agent.volumes / "crashing").exists()


def test_a_killed_agent_restarts_no_container_and_restores_its_state(
    new_agent: "Callable[..., Agent]",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    shell: "Callable[..., agent_pb2.ContainerSpec]",
) -> None:
    agent = new_agent()
    agent.start()
    agent.apply(unique_id, sleeper, epoch=7)
    agent.apply(f"{unique_id}-job", shell("exit 0"))
    before = agent.wait_for(unique_id, RUNNING)
    agent.wait_for(f"{unique_id}-job", STOPPED)

    agent.kill()
    assert agent.containers(unique_id, running=True) == [before.metadata["container.id"]]
    agent.start()

    after = agent.wait_for(unique_id, RUNNING)
    assert after == before
    assert agent.apply(unique_id, sleeper, epoch=7).skipped
    assert agent.status(f"{unique_id}-job").metadata["reason_code"] == "Completed"
    assert agent.stub.ListActions(agent_pb2.ListActionsRequest()).actions[-1].status == "completed"
    assert agent.stop() == 0
    assert agent.containers(unique_id, running=True) == [before.metadata["container.id"]]


@pytest.mark.parametrize("pass_number", [1, 3])
def test_a_batch_is_complete_when_the_agent_dies_between_its_journal_write_and_its_reply(
    new_agent: "Callable[..., Agent]",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    pass_number: int,
) -> None:
    names = [f"{unique_id}-{number}" for number in range(4)]
    batch = agent_pb2.ApplyWorkloadsRequest(
        orders=[
            agent_pb2.ApplyWorkloadRequest(
                id=name,
                type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
                revision_id="r1",
                spec=agent_pb2.WorkloadSpec(container=sleeper),
                epoch=3,
            )
            for name in names
        ]
    )
    agent = new_agent()
    agent.start(failpoint=f"{failpoints.ACCEPTED}:{pass_number}")
    with pytest.raises(grpc.RpcError):
        agent.stub.ApplyWorkloads(batch, timeout=10)
    agent.wait_until_dead()

    agent.start()

    for name in names:
        agent.wait_for(name, RUNNING)
    again = agent.stub.ApplyWorkloads(batch, timeout=10).results
    assert [(result.id, result.response.skipped) for result in again] == [
        (name, True) for name in names
    ]
    assert [len(agent.containers(name)) for name in names] == [1] * len(names)


def test_an_agent_without_its_journal_adopts_ordered_containers(
    new_agent: "Callable[..., Agent]", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent()
    agent.start()
    agent.apply(unique_id, sleeper)
    before = agent.wait_for(unique_id, RUNNING)
    agent.stop()
    for file in agent.directory.glob("state.db*"):
        file.unlink()

    agent.start()
    agent.apply(unique_id, sleeper)
    after = agent.wait_for(unique_id, RUNNING)

    assert after.metadata["container.id"] == before.metadata["container.id"]
    assert after.metadata["container.started_at"] == before.metadata["container.started_at"]


def test_two_agents_cannot_share_a_journal(new_agent: "Callable[..., Agent]") -> None:
    first = new_agent()
    first.start()
    second = new_agent(PERSYS_STATE_PATH=str(first.directory / "state.db"))

    with pytest.raises(AssertionError, match="PERSYS_STATE_PATH"):
        second.start()


def test_a_journal_with_workloads_is_refused_for_another_node_id(
    new_agent: "Callable[..., Agent]", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    first = new_agent()
    first.start()
    first.apply(unique_id, sleeper, desired=agent_pb2.DESIRED_STATE_STOPPED)
    first.stop()
    renamed = new_agent(PERSYS_STATE_PATH=str(first.directory / "state.db"))

    with pytest.raises(AssertionError, match=f"belongs to node {first.node_id}"):
        renamed.start()
