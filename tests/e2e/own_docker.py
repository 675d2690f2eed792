"""A separate Docker daemon that tests can stop.

It runs in a network namespace, so that it does not affect the Docker of the host; only its socket is
reachable from outside.
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
        """`under` is a command that runs dockerd, such as unshare."""
        tag = uuid.uuid4().hex[:6]
        # Short: the length of a socket path is limited, and tmp_path is long.
        self._directory = Path(tempfile.mkdtemp(prefix=f"persys-docker-{tag}-"))
        self.namespace = f"persys-{tag}"
        self.host = f"unix://{self._directory / 'docker.sock'}"
        dockerd = find_command("dockerd")
        assert dockerd is not None, "the tests need dockerd"
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        # Not `ip netns exec`, which would hide the control groups.
        self._process = Process(
            [
                *(*under, "nsenter", f"--net=/run/netns/{self.namespace}", dockerd, *flags),
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
        result = subprocess.run(
            ["docker", "--host", self.host, "version"], capture_output=True, timeout=20, check=False
        )
        return result.returncode == 0

    def start(self) -> None:
        """Returns when it responds."""
        self._process.start()

    def copy_image(self, image: str) -> None:
        """Copy an image from the Docker of the host."""
        kept = self._directory / "image.tar"
        _run("docker", "save", "--output", str(kept), image)
        _run("docker", "--host", self.host, "load", "--input", str(kept))

    def stop(self) -> None:
        """Stop it like a service manager: its containers stop too."""
        assert self._process.stop() == 0, self.log[-2000:]

    def kill(self) -> None:
        """kill -9, which leaves its containers running."""
        self._process.kill()

    def close(self) -> None:
        """Start it again if it is stopped: only this daemon can remove its containers."""
        if not self._process.runs:
            self.start()
        docker = ("docker", "--host", self.host)
        for container in _run(*docker, "ps", "-a", "-q").split():
            # After a kill, dockerd may hang for ever in a removal; the rest is removed below.
            _call(*docker, "rm", "-f", container)
        self._process.kill()
        for pid in _processes_naming(self._directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(self._has_no_mounts, lambda: str(_mounts_below(self._directory)))
        _run("ip", "netns", "delete", self.namespace)
        shutil.rmtree(self._directory)

    def _has_no_mounts(self) -> bool:
        """Unmount all: some are mounted twice, and some are unmounted automatically."""
        for mounted in sorted(_mounts_below(self._directory), reverse=True):
            _call("umount", "--lazy", mounted)
        return not _mounts_below(self._directory)


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _processes_naming(directory: Path) -> list[int]:
    """Its containerd, and the shims of its containers."""
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
