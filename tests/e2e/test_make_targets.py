"""Targets of the Makefile and scripts of hack/: build, push, and etcd in Docker."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import images
from e2e.containers import docker
from e2e.process import Process, free_port, listens_on
from registry import Registry

PROGRAMS = (
    "persys",
    "persysctl",
    "persys-agent",
    "persys-ca",
    "persys-federation",
    "persys-gateway",
    "persys-scheduler",
)
_SECONDS = 250


def make(*words: str, **variables: str) -> str:
    return run("make", "--no-print-directory", *words, **variables)


def run(*words: str, **variables: str) -> str:
    result = subprocess.run(
        words,
        cwd=images.ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout


def test_make_build_creates_a_wheel_and_the_programs_in_bin() -> None:
    output = make("build")

    assert "built dist/persys-" in output
    for program in PROGRAMS:
        assert f"usage: {program}" in run(str(images.ROOT / "bin" / program), "--help")


def test_dev_certs_creates_certificates_in_dev_certs(tmp_path: Path) -> None:
    """In a copy, because a developer may have certificates in the clone."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(images.ROOT / "scripts" / "dev-certs", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(images.ROOT / ".venv")

    subprocess.run([script], cwd=tmp_path, capture_output=True, timeout=120, check=True)

    made = {path.name for path in (tmp_path / "dev" / "certs").iterdir()}
    assert made >= {"agent.crt", "agent.key", "ca.crt", "persys-scheduler", "persys-gateway"}


@pytest.mark.full
def test_the_archive_of_make_build_linux_installs_without_a_package_index() -> None:
    output = make("build-linux")
    images.ensure_base()
    (packed,) = (line.split()[1] for line in output.splitlines() if line.startswith("packed "))
    install = (
        "tar x -z -C /tmp -f /packed.tar.gz && cd /tmp/persys-* && python3 -m venv /tmp/venv"
        " && /tmp/venv/bin/pip install --quiet --no-index --find-links . persys"
        " && /tmp/venv/bin/persys-agent --print-config"
    )

    shown = run(
        *("docker", "run", "--rm", "--network", "none"),
        *("-v", f"{images.ROOT / packed}:/packed.tar.gz:ro", images.BASE, "sh", "-ec", install),
    )

    assert "grpc_port = 50051" in shown


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    created = Registry(tmp_path)
    yield created
    created.close()


def test_make_docker_push_pushes_every_image(
    registry: Registry, demo_image: str, tmp_path: Path
) -> None:
    prefix = f"{registry.address}/persys"
    names = [f"{prefix}/{image}:v1" for image in images.NAMES]
    for name in names:
        docker("tag", demo_image, name)
    docker("tag", demo_image, f"{prefix}/other:v1")

    # That directory has the credentials of the registry, as `docker login` stores them.
    make("docker-push", f"IMAGES={prefix}", "TAG=v1", DOCKER_CONFIG=str(tmp_path))

    docker("rmi", *names, f"{prefix}/other:v1")
    for name in names:
        docker("--config", str(tmp_path), "pull", "--quiet", name)
    docker("rmi", *names)
    repositories = tmp_path / "data" / "docker" / "registry" / "v2" / "repositories" / "persys"
    assert {path.name for path in repositories.iterdir()} == set(images.NAMES)


@pytest.fixture
def etcd(unique_id: str) -> Iterator[dict[str, str]]:
    """Variables of the script."""
    image = images.build_etcd()
    yield {"NAME": unique_id, "PORT": str(free_port()), "IMAGE": image}
    docker("rm", "-f", unique_id)
    docker("volume", "rm", "-f", unique_id)


def test_a_scheduler_runs_on_the_etcd_of_the_script(etcd: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    scheduler = Process(
        [str(images.ROOT / ".venv" / "bin" / "persys-scheduler"), "-insecure"],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(free_port()),
            "ETCD_ENDPOINTS": f"127.0.0.1:{etcd['PORT']}",
            "PERSYS_SECRETS_KEY_FILE": str(tmp_path / "secrets.key"),
        },
        log=tmp_path / "scheduler.log",
        ready=lambda: listens_on(port),
    )

    output = run("hack/start-etcd-docker.sh", **etcd)
    assert f"start a scheduler with ETCD_ENDPOINTS=127.0.0.1:{etcd['PORT']}" in output
    try:
        scheduler.start()
        again = run("hack/start-etcd-docker.sh", **etcd)
    finally:
        scheduler.close()

    assert f"etcd is already running in the container {etcd['NAME']}" in again
    assert "etcd" in scheduler.log


def test_the_etcd_of_the_script_keeps_its_data_when_its_container_is_removed(
    etcd: dict[str, str],
) -> None:
    run("hack/start-etcd-docker.sh", **etcd)
    docker("exec", etcd["NAME"], "etcdctl", "put", "kept", "yes")
    docker("rm", "-f", etcd["NAME"])

    run("hack/start-etcd-docker.sh", **etcd)

    assert "yes" in docker("exec", etcd["NAME"], "etcdctl", "get", "kept")
