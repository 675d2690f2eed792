"""Our scheduler with a third-party agent that runs real containers, stacks and VMs."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import compose_binaries
from e2e import vms
from e2e.containers import docker
from e2e.vms import TINY, virsh
from e2e.waiting import eventually
from registry import Registry
from third_party.pairings import OurScheduler
from third_party.programs import Agent
from third_party.user import a_spec

BOOT_SECONDS = 120


@pytest.fixture(scope="module")
def vm_directory() -> Iterator[Path]:
    with vms.vm_directory() as (directory, _):
        disk = directory / "template.qcow2"
        shutil.copy(TINY, disk)
        yield directory


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    created = Registry(tmp_path_factory.mktemp("registry"))
    yield created
    created.close()


@pytest.fixture(scope="module")
def image(registry: Registry, demo_image: str) -> Iterator[str]:
    """An image that must be pulled."""
    there = registry.push(demo_image, "third-party:latest")
    yield there
    subprocess.run(["docker", "rmi", "-f", there], capture_output=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def pairing(
    vm_directory: Path, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OurScheduler]:
    created = OurScheduler(tmp_path_factory.mktemp("pairing"))
    try:
        created.scheduler.start()
        created.add_agent(
            runtime="engines",
            compose=compose_binaries.V2,
            vm_directory=str(vm_directory),
            docker_config=str(registry.login_folder),
        )
        created.agent.set_behaviour(stop_seconds=1)
        yield created
    finally:
        created.close()
        left = docker("ps", "-aq", "--filter", f"name={created.agent.node_id}").split()
        for container in left:
            docker("rm", "-f", "-v", container)


def live(pairing: OurScheduler, name: str, kind: str, image: str, disk: Path) -> Iterator[str]:
    """Apply, stop, start and delete it; yields each status when it is reached."""
    user = pairing.user
    for version in (1, 2):
        user.apply(name, a_spec(kind, version=version, image=image, disk=disk))
        user.until(name, "Running", within=BOOT_SECONDS)
        yield f"Running {version}"
    for status in ("Stopped", "Running"):
        user.want(name, status)
        user.until(name, status, within=BOOT_SECONDS)
        yield status
    user.delete(name)
    user.until_gone(name, within=BOOT_SECONDS)
    yield "gone"


def test_a_container_is_managed_by_an_agent_that_always_pulls(
    pairing: OurScheduler, image: str, vm_directory: Path, unique_id: str
) -> None:
    container = f"{pairing.agent.node_id}-{unique_id}"

    def running() -> str:
        return docker("ps", "-q", "--filter", f"name={container}")

    seen = {
        status: bool(running())
        for status in live(pairing, unique_id, "container", image, vm_directory)
    }
    assert seen == {
        "Running 1": True,
        "Running 2": True,
        "Stopped": False,
        "Running": True,
        "gone": False,
    }
    assert docker("ps", "-aq", "--filter", f"name={container}") == ""


def test_a_stack_is_managed(
    pairing: OurScheduler, image: str, vm_directory: Path, unique_id: str
) -> None:
    project = f"label=com.docker.compose.project={unique_id}"

    def running() -> bool:
        return bool(docker("ps", "-q", "--filter", project))

    seen = [running() for _ in live(pairing, unique_id, "compose", image, vm_directory)]
    assert seen == [True, True, False, True, False]
    assert docker("ps", "-aq", "--filter", project) == ""


def test_a_vm_is_managed(pairing: OurScheduler, vm_directory: Path, unique_id: str) -> None:
    disk = vm_directory / "template.qcow2"
    seen = [
        virsh("domstate", unique_id, check=False) for _ in live(pairing, unique_id, "vm", "", disk)
    ]

    assert seen == ["running", "running", "shut off", "running", ""]
    assert unique_id not in virsh("list", "--all", "--name").split()


def test_a_failed_pull_is_reported_within_a_poll(
    pairing: OurScheduler, registry: Registry, unique_id: str
) -> None:
    absent = f"{registry.address}/absent:latest"
    pairing.user.apply(unique_id, a_spec("container", image=absent))
    view = pairing.user.until(unique_id, "Failed")

    assert view.failure_reason in ("IMAGE_NOT_FOUND", "IMAGE_PULL_FAILED")
    assert "failed to pull image: " in view.reason.message
    pairing.user.delete(unique_id)
    pairing.user.until_gone(unique_id)


def test_a_manually_removed_container_is_recreated(
    pairing: OurScheduler, image: str, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec("container", image=image))
    pairing.user.until(unique_id, "Running")
    container = f"{pairing.agent.node_id}-{unique_id}"
    first = docker("ps", "-q", "--filter", f"name={container}")
    docker("rm", "-f", first)

    eventually(
        lambda: docker("ps", "-q", "--filter", f"name={container}") not in ("", first),
        "another container runs",
    )
    pairing.user.delete(unique_id)
    pairing.user.until_gone(unique_id)


def test_containers_survive_kill_9_of_their_agent(
    pairing: OurScheduler, image: str, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec("container", image=image))
    pairing.user.until(unique_id, "Running")
    agent: Agent = pairing.agent
    first = docker("ps", "-q", "--filter", f"name={agent.node_id}-{unique_id}")
    agent.kill()
    agent.start()
    listed = len(agent.events("listed", ""))
    eventually(lambda: len(agent.events("listed", "")) > listed + 1, "two surveys")

    assert docker("ps", "-q", "--filter", f"name={agent.node_id}-{unique_id}") == first
    pairing.user.delete(unique_id)
    pairing.user.until_gone(unique_id)
