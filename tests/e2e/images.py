"""Images of deploy/docker, built here without a registry: from a Debian that scripts/base-image makes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.containers import docker

ROOT = Path(__file__).resolve().parents[2]
BASE = "persys-base:latest"
PERSYS = "persys-test-plane:latest"
ETCD = "persys-test-etcd:latest"
COREDNS = "persys-test-coredns:latest"
PROMETHEUS = "persys-test-prometheus:latest"
_BUILD_SECONDS = 280


def build_persys(place: Path) -> str:
    """As the head of the Dockerfile tells for places without a package index."""
    ensure_base()
    for name in ("src", "requirements", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    shutil.copytree(ROOT / "deploy" / "docker", place / "deploy" / "docker")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, place)
    _fetch_wheels(place / "deploy" / "docker" / "wheels")
    file = place / "deploy" / "docker" / "Dockerfile"
    # Both stages have a name, so that the next build finds them; what they replace has none any more.
    _build(f"{PERSYS}-build", file, place, "PIP_NO_INDEX=1", target="build")
    _build(PERSYS, file, place, "PIP_NO_INDEX=1")
    docker("image", "prune", "--force", "--filter", "label=org.opencontainers.image.title=persys")
    return PERSYS


def build_etcd() -> str:
    ensure_base()
    docker = ROOT / "deploy" / "docker"
    _build(ETCD, docker / "etcd.Dockerfile", docker)
    return ETCD


def build_program(image: str, program: Path, place: Path) -> str:
    """What an image of somebody else is for us: one program, and the entry point."""
    place.mkdir(parents=True)
    shutil.copy(program, place / "program")
    (place / "Dockerfile").write_text(
        f'FROM {BASE}\nCOPY program /program\nENTRYPOINT ["/program"]\n'
    )
    _build(image, place / "Dockerfile", place)
    return image


def ensure_base() -> None:
    subprocess.run([ROOT / "scripts" / "base-image"], timeout=_BUILD_SECONDS, check=True)


def _fetch_wheels(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    wanted = ROOT / "requirements" / "runtime.txt"
    for words in (["--require-hashes", "-r", str(wanted)], ["setuptools"]):
        subprocess.run([*pip, *words], timeout=_BUILD_SECONDS, check=True)


def _build(image: str, file: Path, context: Path, *arguments: str, target: str = "") -> None:
    words = ["docker", "build", "--quiet", "--network", "host", "--tag", image, "--file", str(file)]
    words += ["--target", target] if target else []
    for argument in (f"BASE={BASE}", *arguments):
        words += ["--build-arg", argument]
    done = subprocess.run(
        [*words, str(context)],
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"docker build {image}: {done.stdout}{done.stderr}"
