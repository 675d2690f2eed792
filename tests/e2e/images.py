"""Images of deploy/docker, built without a registry from the Debian of scripts/base-image."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from e2e.containers import docker

ROOT = Path(__file__).resolve().parents[2]
BASE = "persys-base:latest"
PREFIX = "persys-test"
NAMES = (
    "persys",
    "persys-scheduler",
    "persys-gateway",
    "persys-ca",
    "persys-federation",
    "compute-agent",
)
PERSYS = f"{PREFIX}/persys:latest"
ETCD = "persys-test-etcd:latest"
COREDNS = "persys-test-coredns:latest"
PROMETHEUS = "persys-test-prometheus:latest"
SYSTEMD = "persys-test-systemd:latest"
DEBIAN_13 = "trixie"
DEBIAN_13_BASE = f"persys-base:{DEBIAN_13}"
DEBIAN_13_SYSTEMD = f"persys-test-systemd:{DEBIAN_13}"
SSH_HOST = "persys-test-ssh-host:latest"
BUILD_SECONDS = 1200  # installs packages, possibly on a busy host


@cache
def build_persys() -> None:
    """All images of our programs, as `make docker-build` builds them, once per test run."""
    _run([str(ROOT / "scripts" / "images"), "build", PREFIX, "latest", "dependencies", *NAMES])
    # The replaced images have no name any more. Dependencies keep theirs for the next test run.
    docker("image", "prune", "--force", "--filter", "label=org.opencontainers.image.title=persys")


def build_etcd() -> str:
    ensure_base()
    docker = ROOT / "deploy" / "docker"
    _build(ETCD, docker / "etcd.Dockerfile", docker)
    return ETCD


def build_program(image: str, program: Path, place: Path) -> str:
    """Replaces a third-party image: one program and the entry point."""
    place.mkdir(parents=True)
    shutil.copy(program, place / "program")
    (place / "Dockerfile").write_text(
        f'FROM {BASE}\nCOPY program /program\nENTRYPOINT ["/program"]\n'
    )
    _build(image, place / "Dockerfile", place)
    return image


def build_systemd(place: Path) -> str:
    """A bootable Debian with Python."""
    ensure_base()
    return _build_bootable(SYSTEMD, BASE, place)


def build_debian_13(place: Path) -> str:
    """A bootable Debian 13 with Python, also on a host with another release."""
    ensure_base(DEBIAN_13)
    return _build_bootable(DEBIAN_13_SYSTEMD, DEBIAN_13_BASE, place)


def _build_bootable(image: str, base: str, place: Path) -> str:
    place.mkdir(parents=True)
    (place / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends dbus systemd-sysv\n"
    )
    _build(image, place / "Dockerfile", place)
    return image


def build_ssh_host(place: Path) -> str:
    """A bootable Debian with Python, sshd, sudo and etcd, whose units are not started."""
    ensure_base()
    place.mkdir(parents=True)
    (place / "Dockerfile").write_text(
        f"FROM {BASE}\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends dbus systemd-sysv"
        " openssh-server sudo etcd-server iproute2 && systemctl mask etcd\n"
    )
    _build(SSH_HOST, place / "Dockerfile", place)
    return SSH_HOST


def fetch_wheels() -> None:
    """The dependencies for hosts without a package index, in deploy/docker/wheels."""
    subprocess.run([ROOT / "scripts" / "wheels"], timeout=BUILD_SECONDS, check=True)


def ensure_base(*suite: str) -> None:
    subprocess.run([ROOT / "scripts" / "base-image", *suite], timeout=BUILD_SECONDS, check=True)


def _build(image: str, file: Path, context: Path) -> None:
    words = ["docker", "build", "--quiet", "--network", "host", "--tag", image, "--file", str(file)]
    _run([*words, "--build-arg", f"BASE={BASE}", str(context)])


def _run(words: list[str]) -> None:
    result = subprocess.run(
        words,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"{words}: {result.stdout[-2000:]}{result.stderr}"
