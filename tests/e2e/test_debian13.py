"""Debian 13 with Python 3.13: the packages are built there, installed, and run a workload."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import images
from e2e.containers import docker
from e2e.debs import WORKLOAD, DebianHost
from e2e.systemd_host import PARTS, packed_sources
from e2e.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]

VERSION = "1.0.0"
PYTHON = "3.13"
_BUILD_SECONDS = 900
# The dependencies are sent: the host needs no package index.
_BUILD = f"""
set -eu
cd /source
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/source/wheels TMPDIR=/srv
python3 -m venv .venv
.venv/bin/pip install -q --no-compile --require-hashes -r requirements/runtime.txt
.venv/bin/pip install -q --no-compile --require-hashes -r requirements/build.txt
.venv/bin/pip install -q --no-compile --no-deps --no-build-isolation .
VERSION={VERSION} SOURCE_DATE_EPOCH=1000000000 scripts/deb /srv/packages
"""


class Debian13(DebianHost):
    def build_image(self, directory: Path) -> str:
        return images.build_debian_13(directory)

    def build_and_install(self, wheels: Path) -> None:
        self.run("mkdir", "/source")
        sources = packed_sources("scripts", without=["deploy/docker/wheels"])
        self.send(sources, "tar", "x", "-C", "/source")
        docker("cp", str(wheels), f"{self.node_id}:/source/wheels")
        self.run("sh", "-c", _BUILD, seconds=_BUILD_SECONDS)
        self.run("sh", "-c", "dpkg --install /srv/packages/*.deb")


def fetch_wheels(directory: Path) -> Path:
    for name in ("runtime", "build"):
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", directory)
        which = ("--python-version", PYTHON, "--only-binary", ":all:", "--require-hashes")
        file = images.ROOT / "requirements" / f"{name}.txt"
        subprocess.run([*pip, *which, "-r", file], timeout=_BUILD_SECONDS, check=True)
    return directory


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian13]:
    wheels = fetch_wheels(tmp_path_factory.mktemp("wheels"))
    created = Debian13(tmp_path_factory.mktemp("systemd"))
    try:
        created.wait_until_booted()
        created.build_and_install(wheels)
        yield created
    finally:
        created.close()


def test_the_packages_use_the_python_of_the_release(host: Debian13) -> None:
    assert host.run("cat", "/etc/debian_version").startswith("13.")
    depends = ("dpkg-query", "--show", "--showformat", "${Depends}", "persys-common")
    assert f"python{PYTHON}," in host.run(*depends)
    assert host.run("/opt/persys/bin/python", "--version").startswith(f"Python {PYTHON}.")
    assert host.changed_files() == []


def test_the_programs_start(host: Debian13) -> None:
    assert host.run("persysctl", "--version") == f"persysctl {VERSION}\n"
    assert "PERSYS_STORE" in host.run("persys-scheduler", "--print-config")


def test_a_workload_runs_on_a_cluster_of_this_host(host: Debian13, demo_image: str) -> None:
    host.start_cluster()
    eventually(host.is_ready, lambda: host.journal("agent"))
    name = f"{host.node_id}-w"
    host.write("/srv/ada/workload.yaml", WORKLOAD.format(name=name, image=demo_image))

    host.run("persysctl", "apply", "-f", "/srv/ada/workload.yaml", "--wait")

    assert host.container(name).running
    assert host.states() == dict.fromkeys(PARTS, "active")
    host.run("persysctl", "workload", "delete", name, "--wait")
