"""A container with a real systemd and a Docker that uses the systemd cgroup driver, on cgroup v1.

The programs and libraries of Docker are those of the host.
"""

import shutil
import subprocess
from pathlib import Path

from e2e.containers import docker
from e2e.systemd_host import SystemdHost
from e2e.waiting import eventually

_PROGRAMS = ("dockerd", "containerd", "containerd-shim-runc-v2", "runc", "docker")
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
ROOT = "/sys/fs/cgroup"
# Docker mounts cgroups read-only; these belong to the cgroup namespace of the container.
_BOOT = " && ".join(
    [
        f"umount -R {ROOT}",
        f"mount -t tmpfs cgroup {ROOT}",
        *(
            f"mkdir {ROOT}/{one} && mount -t cgroup -o {one} cgroup {ROOT}/{one}"
            for one in _CONTROLLERS
        ),
        f"mkdir {ROOT}/systemd && mount -t cgroup -o none,name=systemd cgroup {ROOT}/systemd",
        "mount --make-rshared /",
        "exec /sbin/init",
    ]
)
_DAEMON = (
    *("systemd-run", "--unit=dockerd", "--property=Delegate=yes"),
    "--setenv=LD_LIBRARY_PATH=/srv/lib",
    "--setenv=PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    *("dockerd", "--iptables=false", "--bridge=none"),
    *("--exec-opt", "native.cgroupdriver=systemd"),
)


class SystemdDocker(SystemdHost):
    boot = _BOOT
    further: tuple[str, ...] = (
        "--cap-add=NET_ADMIN",
        "--volume=/var/lib/docker",
        f"--volume={_LIBRARIES}:/srv/lib:ro",
    )

    def __init__(self, directory: Path) -> None:
        self.further = (*self.further, *map(_mount, _PROGRAMS))
        super().__init__(directory)

    def start_docker(self) -> None:
        self.wait_until_booted()
        self.run(*_DAEMON)
        eventually(lambda: self.try_run("docker", "version").returncode == 0, self._log)

    def copy_image(self, image: str) -> None:
        """Copy an image from the Docker of the host."""
        packed = subprocess.run(["docker", "save", image], capture_output=True, check=True)
        self.send(packed.stdout, "docker", "load")

    def read(self, controller: str, path: str) -> str:
        return self.run("cat", f"{ROOT}/{controller}/{path}").strip()

    def close(self) -> None:
        docker("rm", "-f", "-v", self.node_id)

    def _log(self) -> str:
        return self.run("journalctl", "--no-pager", "-n", "40", "-u", "dockerd")


def _mount(program: str) -> str:
    found = shutil.which(program)
    assert found is not None, f"the tests need {program}"
    return f"--volume={Path(found).resolve()}:/usr/local/bin/{program}:ro"
