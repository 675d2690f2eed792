"""VMs beside containers and stacks, on the libvirt of the host."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e import vms
from e2e.cluster import BIN, Cluster
from e2e.containers import docker
from e2e.vms import BOOT_SECONDS, TINY, add_image, page, served_page, virsh
from e2e.waiting import eventually

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "machine.yaml"
Persysctl = Callable[..., str]


@pytest.fixture(scope="module")
def vm_directory() -> Iterator[tuple[Path, dict[str, str]]]:
    with vms.vm_directory() as created:
        yield created


@pytest.fixture(scope="module")
def cluster_settings(vm_directory: tuple[Path, dict[str, str]]) -> dict[str, dict[str, str]]:
    _, settings = vm_directory
    compose = {
        "PERSYS_COMPOSE_ENABLED": "true",
        "PERSYS_COMPOSE_BINARY": "docker-compose",
        "PERSYS_STOP_GRACE": "1s",
    }
    return {"agent": {**settings, **compose}}


@pytest.fixture
def persysctl(cluster: Cluster, tmp_path: Path) -> Persysctl:
    def run(*words: str) -> str:
        result = subprocess.run(
            [BIN / "persysctl", "--scheduler", cluster.target, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERSYS_INSECURE": "true"},
            capture_output=True,
            text=True,
            timeout=BOOT_SECONDS,
            check=False,
        )
        assert result.returncode == 0, (
            f"persysctl {' '.join(words)}: {result.stderr}{result.stdout}"
        )
        return result.stdout

    return run


def test_a_container_a_stack_and_a_vm_are_applied_and_deleted_from_one_file(
    cluster: Cluster,
    vm_directory: tuple[Path, dict[str, str]],
    persysctl: Persysctl,
    unique_id: str,
    demo_image: str,
    tmp_path: Path,
) -> None:
    directory, _ = vm_directory
    text = EXAMPLE.read_text().replace("hello", unique_id).replace("Hello", "first")
    file = tmp_path / "all.yaml"
    file.write_text(text.replace("persys-demo:latest", demo_image))
    container, stack, vm = (f"{unique_id}-{kind}" for kind in ("container", "compose", "machine"))
    add_image(cluster, "tiny", TINY)

    persysctl("workload", "apply", "-f", str(file), "--wait", "--timeout", f"{BOOT_SECONDS}s")
    address = _address(cluster, persysctl, vm)
    eventually(lambda: page(address, "hostname") == vm, "it has its name", within=BOOT_SECONDS)
    written = served_page(address, "first-start")
    assert "guest: up" in persysctl("logs", vm)
    eventually(lambda: vm in persysctl("top"), "its usage is shown")

    text = file.read_text().replace("GREETING: first", "GREETING: second")
    file.write_text(text.replace("memory_mb: 192", "memory_mb: 224"))
    persysctl("workload", "apply", "-f", str(file), "--wait", "--timeout", f"{BOOT_SECONDS}s")
    assert f"<memory unit='KiB'>{224 * 1024}<" in virsh("dumpxml", vm)
    address = _address(cluster, persysctl, vm)
    eventually(lambda: page(address, "hostname") != "", "it is up again", within=BOOT_SECONDS)
    eventually(lambda: page(address, "first-start") == written, "its disk is the same")
    assert "GREETING=second" in cluster.container(container).env
    (writer,) = cluster.containers([stack])
    assert docker("exec", writer.id, "cat", "/data/greetings").split() == ["first", "second"]

    before = cluster.containers([container, stack]), virsh("domid", vm)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_for_all([container, stack, vm], "Running")
    assert (cluster.containers([container, stack]), virsh("domid", vm)) == before

    cluster.delete_all([container, stack, vm])
    cluster.wait_until_gone([container, stack, vm])
    kept = docker("volume", "ls", "-q", "--filter", f"label=persys.workload_id={stack}").split()
    docker("volume", "rm", *kept)
    assert len(kept) == 1, "a stack's volume stays unless its policy says Delete"
    assert vms.domains(directory) == []
    assert vms.volumes(directory) == []
    assert vm not in virsh("list", "--all", "--name").split()
    assert unique_id not in Path("/proc/mounts").read_text()
    assert unique_id not in subprocess.check_output(["losetup", "-a"], text=True)


def _address(cluster: Cluster, persysctl: Persysctl, vm: str) -> str:
    """The address in the output of persysctl."""
    pattern = re.compile(r"\b192\.168\.\d+\.\d+\b")
    eventually(
        lambda: pattern.search(persysctl("workload", "get", vm)) is not None,
        lambda: f"an address in {persysctl('workload', 'get', vm)}",
        within=BOOT_SECONDS,
    )
    found = pattern.search(persysctl("workload", "get", vm))
    assert found is not None
    return found[0]
