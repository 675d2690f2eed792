"""The resources of a stack limit all its containers together, with Compose v1 and v2."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shells.agent.conftest import RUNNING, docker
from shells.agent.runtimes.compose.stacks import (
    BINARIES,
    V1_IF_FULL,
    WITHIN,
    apply,
    runs,
    services,
    stack_agent,
    until,
)

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

STACK = """
    services:
      web:
        image: persys-test
        command: ["sleep", "3600"]
        init: true
      db:
        image: persys-test
        command: ["sleep", "3600"]
        init: true
    """
# Fills memory until it is killed.
HOG = "x=a; while true; do x=$x$x; done"
PIDS_MAX = 20


@pytest.fixture(scope="module", params=V1_IF_FULL)
def stacks(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    agent_in: Callable[..., "Agent"],
    demo_image: str,
) -> Iterator["Agent"]:
    with stack_agent(
        agent_in,
        tmp_path_factory.mktemp(f"limits-{request.param}"),
        BINARIES[request.param],
        reconcile_interval="500ms",
        PERSYS_PIDS_MAX=str(PIDS_MAX),
    ) as agent:
        yield agent


def group(agent: "Agent", workload_id: str, controller: str) -> Path:
    """The parent cgroup of a stack's container."""
    pid = services(agent, workload_id)["web"]["State"]["Pid"]
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return Path("/sys/fs/cgroup", controller, path.lstrip("/")).parent
        if not names and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path("/sys/fs/cgroup", path.lstrip("/")).parent
    raise AssertionError(f"no group of {controller}")


def memory_limit(agent: "Agent", workload_id: str) -> int:
    found = group(agent, workload_id, "memory")
    file = found / "memory.max"
    return int((file if file.exists() else found / "memory.limit_in_bytes").read_text())


def kills(stack: Path) -> int:
    """Processes that were killed because the stack exceeded its memory."""
    files = [*stack.glob("*/memory.oom_control"), *stack.glob("memory.events")]
    words = [line.split() for file in files for line in file.read_text().splitlines()]
    return sum(int(count) for name, count in words if name == "oom_kill")


def test_a_stack_is_limited_as_a_whole_and_its_cgroup_is_removed_with_it(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id, STACK, cpu_millicores=500, memory_mb=64)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    of_cpu, of_pids = (group(stacks, unique_id, name) for name in ("cpu", "pids"))

    assert memory_limit(stacks, unique_id) == 64 << 20
    unified = of_cpu / "cpu.max"
    quota = (unified if unified.exists() else of_cpu / "cpu.cfs_quota_us").read_text()
    assert quota.split()[0] == "50000"
    assert (of_pids / "pids.max").read_text().strip() == str(2 * PIDS_MAX)
    assert unique_id in of_cpu.name
    assert "note" not in stacks.status(unique_id).metadata
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)
    until(lambda: not of_cpu.exists() and not of_pids.exists())


def test_two_services_together_cannot_exceed_the_memory_of_the_stack(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id, STACK, memory_mb=48)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    web = services(stacks, unique_id)["web"]["Id"]

    docker("exec", "-d", web, "sh", "-c", HOG)

    until(lambda: kills(group(stacks, unique_id, "memory")) > 0)
    until(lambda: HOG not in docker("top", web))


def test_changed_resources_apply_at_once_and_replace_no_container(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id, STACK, memory_mb=64)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    before = runs(stacks, unique_id)

    apply(stacks, unique_id, STACK, revision="r2", memory_mb=96)
    until(lambda: memory_limit(stacks, unique_id) == 96 << 20)

    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    assert runs(stacks, unique_id) == before


def test_a_manually_changed_limit_is_set_again(stacks: "Agent", unique_id: str) -> None:
    apply(stacks, unique_id, STACK, memory_mb=64)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    found = group(stacks, unique_id, "pids") / "pids.max"

    found.write_text("max")

    until(lambda: found.read_text().strip() == str(2 * PIDS_MAX))
