"""The limits of stacks with the systemd cgroup driver, on a real systemd and a real Docker."""

from collections.abc import Iterator

import pytest

from e2e.systemd_docker import SystemdDocker
from persys.agent.runtimes.compose.cgroups import StackLimits, SystemdCgroups

NAME = "default-n1-web"
MEMORY_MB = 64
# Fills memory until it is killed.
HOG = "x=a; while true; do x=$x$x; done"
KILLED = 137
CGROUPS = SystemdCgroups()

pytestmark = pytest.mark.full


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory, demo_image: str) -> Iterator[SystemdDocker]:
    made = SystemdDocker(tmp_path_factory.mktemp("systemd"))
    try:
        made.start_docker()
        made.copy_image(demo_image)
        yield made
    finally:
        made.close()


def test_the_containers_of_a_stack_share_the_limits_of_its_slice(
    host: SystemdDocker, demo_image: str
) -> None:
    run = ("docker", "run", "--network=none", f"--cgroup-parent={CGROUPS.parent(NAME)}")

    host.run(*CGROUPS.limit_command(NAME, StackLimits(500, MEMORY_MB, 20)))
    container = host.run(*run, "-d", demo_image, "sleep", "3600").strip()

    pid = host.run("docker", "inspect", "-f", "{{.State.Pid}}", container).strip()
    place = CGROUPS.place(NAME, container)
    assert f":memory:/{place}" in host.run("cat", f"/proc/{pid}/cgroup")
    group = place.rpartition("/")[0]
    assert host.read("memory", f"{group}/memory.limit_in_bytes") == str(MEMORY_MB << 20)
    assert host.read("cpu", f"{group}/cpu.cfs_quota_us") == "50000"
    assert host.read("pids", f"{group}/pids.max") == "20"
    assert host.try_run(*run, "--rm", demo_image, "sh", "-c", HOG).returncode == KILLED

    host.run(*CGROUPS.limit_command(NAME, StackLimits()))
    assert host.read("cpu", f"{group}/cpu.cfs_quota_us") == "-1"
    assert host.read("pids", f"{group}/pids.max") == "max"

    host.run("docker", "rm", "-f", container)
    host.run(*CGROUPS.remove_command(NAME))
