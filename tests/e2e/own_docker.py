"""A Docker of the tests' own, which they may stop.

It is in a network namespace, so that it leaves the machine's own Docker alone; only its socket is reachable
from outside.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from e2e.process import Process
from e2e.waiting import eventually
from persys.cli.local.packages import find_command


class OwnDocker:
    def __init__(self, *flags: str, under: Sequence[str] = ()) -> None:
        """`under` is a command that executes dockerd, such as unshare."""
        tag = uuid.uuid4().hex[:6]
        # Short: the paths of sockets are bounded, and a test's own directory is deep.
        self._directory = Path(tempfile.mkdtemp(prefix=f"persys-docker-{tag}-"))
        self._namespace = f"persys-{tag}"
        self.host = f"unix://{self._directory / 'docker.sock'}"
        dockerd = find_command("dockerd")
        assert dockerd is not None, "the tests need dockerd"
        _run("ip", "netns", "add", self._namespace)
        _run("ip", "-n", self._namespace, "link", "set", "lo", "up")
        # Not `ip netns exec`, which would hide the control groups.
        self._process = Process(
            [
                *(*under, "nsenter", f"--net=/run/netns/{self._namespace}", dockerd, *flags),
                *("--host", self.host),
                *("--data-root", str(self._directory / "data")),
                *("--exec-root", str(self._directory / "exec")),
                *("--pidfile", str(self._directory / "pid")),
            ],
            {},
            log=self._directory / "log",
            ready=self.answers,
        )

    @property
    def log(self) -> str:
        return self._process.log

    @property
    def pid(self) -> int:
        return self._process.pid

    def answers(self) -> bool:
        asked = subprocess.run(
            ["docker", "--host", self.host, "version"], capture_output=True, timeout=20, check=False
        )
        return asked.returncode == 0

    def start(self) -> None:
        """Returns when it answers."""
        self._process.start()

    def take(self, image: str) -> None:
        """An image that the machine's Docker has."""
        kept = self._directory / "image.tar"
        _run("docker", "save", "--output", str(kept), image)
        _run("docker", "--host", self.host, "load", "--input", str(kept))

    def stop(self) -> None:
        """As a service manager would: its containers end with it."""
        assert self._process.stop() == 0, self.log[-2000:]

    def kill(self) -> None:
        """kill -9, which leaves its containers running."""
        self._process.kill()

    def close(self) -> None:
        """It is needed once more if it was away: nobody else could remove what it ran."""
        if not self._process.runs:
            self.start()
        docker = ("docker", "--host", self.host)
        for container in _run(*docker, "ps", "-a", "-q").split():
            # One that was killed may hang in a removal of its own, for good; what is left goes below.
            _call(*docker, "rm", "-f", container)
        self._process.kill()
        for pid in _processes_naming(self._directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(self._has_no_mounts, lambda: str(_mounts_below(self._directory)))
        _run("ip", "netns", "delete", self._namespace)
        shutil.rmtree(self._directory)

    def _has_no_mounts(self) -> bool:
        """Some are there twice, and some go by themselves."""
        for mounted in sorted(_mounts_below(self._directory), reverse=True):
            _call("umount", "--lazy", mounted)
        return not _mounts_below(self._directory)


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _processes_naming(directory: Path) -> list[int]:
    """Its containerd, and the shims of its containers, with which they end."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(directory).encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def _run(*command: str) -> str:
    done = _call(*command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
