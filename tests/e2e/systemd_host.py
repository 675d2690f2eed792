"""A container with a real systemd, in which our programs are installed as in docs/how-to/production.md.

Its agent uses the Docker of the host. The container is not privileged, because not every host allows it;
systemd needs to mount.
"""

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from e2e import containers, images
from e2e.containers import Container, docker
from e2e.waiting import eventually

PORTS = {"ca": 8888, "scheduler": 8085, "agent": 50051, "gateway": 8551}
PARTS = tuple(PORTS)
# A container with a secret of its own name.
WORKLOAD = """\
id: {name}
type: container
resources: {{cpu_millicores: 30, memory_mb: 16}}
container:
  image: {image}
  init: true
  image_pull_policy: Never
  command: [sleep, "3600"]
  env: {{PASSWORD: "secret://{name}"}}
"""
_SECONDS = 240
_SOURCES = (
    *("LICENSE", "README.md", "deploy", "examples", "man", "pyproject.toml", "requirements"),
    *("setup.py", "src"),
)
_INSTALL = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/source/deploy/docker/wheels",
    # Compilation takes most of the time. `no` sets --no-compile: pip stores the value of the opposite.
    "PIP_NO_COMPILE": "no",
}
# Docker mounts cgroups read-only and all mounts private: systemd needs a writable hierarchy,
# and creates the directory of a unit's credentials in a separate mount namespace.
_BOOT = (
    "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    " && mount --make-rshared / && exec /sbin/init"
)
_RUN = (
    "--cap-add=SYS_ADMIN",
    "--cap-add=SYS_PTRACE",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--cgroupns=private",
    "--tmpfs=/run",
    "--tmpfs=/tmp",
    "--env=container=docker",
    "--stop-signal=SIGRTMIN+3",
)
_PERSYSCTL = """\
ca_endpoint: 127.0.0.1:8888
grpc_endpoint: 127.0.0.1:8085
transport: grpc
ca_cert_path: /srv/ada/.persys/ca.crt
cert_path: /srv/ada/.persys/admin.crt
key_path: /srv/ada/.persys/admin.key
"""


class SystemdHost:
    boot = _BOOT
    further: tuple[str, ...] = ("--volume=/var/run/docker.sock:/srv/docker.sock",)

    def __init__(self, directory: Path) -> None:
        self.node_id = f"systemd-{uuid4().hex[:8]}"
        image = self.build_image(directory / "image")
        how = ("--name", self.node_id, "--hostname", self.node_id, *_RUN, *self.further)
        docker("run", "-d", *how, image, "sh", "-c", self.boot)

    def build_image(self, directory: Path) -> str:
        return images.build_systemd(directory)

    def close(self) -> None:
        docker("rm", "-f", "-v", self.node_id)
        containers.remove(containers.container_ids(self.node_id))

    def wait_until_booted(self) -> None:
        def state() -> str:
            return self.try_run("systemctl", "is-system-running").stdout.strip()

        eventually(lambda: state() == "running", lambda: f"{state()}: {self._failed()}", within=120)

    def reboot(self) -> None:
        docker("restart", "--time", "30", self.node_id)
        self.wait_until_booted()

    # Commands of an administrator.

    def install(self) -> str:
        images.fetch_wheels()
        self.run("mkdir", "/source")
        self.send(packed_sources(), "tar", "x", "-C", "/source")
        return self.run("env", *(f"{k}={v}" for k, v in _INSTALL.items()), "/source/deploy/install")

    def start_cluster(self) -> None:
        """Configures and starts all services, as docs/how-to/production.md does."""
        self.add_variables("ca", "PERSYS_CA_ADVERTISE=127.0.0.1:8888")
        self.enable("ca")
        self.install_admin_certificate()
        self.join("scheduler")
        self.add_variables("scheduler", "PERSYS_CA_ADDR=127.0.0.1:8888")
        self.enable("scheduler")
        self.join_agent()
        self.add_variables(
            *("agent", "DOCKER_HOST=unix:///srv/docker.sock", "PERSYS_VM_ENABLED=false"),
            *(f"PERSYS_ADMISSION_{name}_PERCENT=100" for name in ("CPU", "MEMORY", "DISK")),
        )
        self.enable("agent")
        self.join("gateway")
        self.add_variables("gateway", "PERSYS_SCHEDULER_ADDR=127.0.0.1:8085")
        self.enable("gateway")

    def run(self, *words: str, seconds: float = _SECONDS) -> str:
        done = self.try_run(*words, seconds=seconds)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_run(self, *words: str, seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "exec", "--env", "HOME=/srv/ada", self.node_id, *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def write(self, path: str, text: str, *, mode: str = "600") -> None:
        self.run("install", "-D", "-m", mode, "/dev/null", path)
        self.send(text.encode(), "tee", path)

    def add_variables(self, part: str, *lines: str) -> None:
        self.send("".join(f"{line}\n" for line in lines).encode(), "tee", "-a", _variables(part))

    def enable(self, part: str) -> None:
        self.run("systemctl", "enable", f"persys-{part}")
        self.run("systemctl", "start", f"persys-{part}")
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{PORTS[part]}"
        eventually(
            lambda: self.try_run("bash", "-c", connect).returncode == 0, lambda: self.journal(part)
        )

    def install_admin_certificate(self) -> None:
        issue = ("persys-ca", "certificate", "--role", "admin", "--name", "ada", "--ttl", "90d")
        self.write("/srv/ada/.persys/config.yaml", _PERSYSCTL)
        self.run("runuser", "-u", "persys", "--", *issue, "--out", "/tmp/ada")
        self.run("sh", "-c", "mv /tmp/ada/* /srv/ada/.persys/")

    def join(self, part: str) -> None:
        out = f"/etc/persys/certs/persys-{part}"
        token = self.run("persysctl", "token", "create", "--role", part, "--name", "a").strip()
        self.run("persysctl", "certificate", "join", token, "--out", out)
        self.run("chown", "-R", "persys:", out)

    def join_agent(self) -> None:
        words = ("persysctl", "token", "create", "--role", "agent", "--node", self.node_id)
        token = self.run(*words).strip()
        self.run("persys-agent", "join", "127.0.0.1:8085", token)

    # State of systemd and the kernel.

    def property(self, part: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", "-p", name, f"persys-{part}").strip()

    def pid(self, part: str) -> int:
        return int(self.property(part, "MainPID"))

    def process(self, part: str) -> dict[str, str]:
        """/proc/PID/status of the unit's process."""
        lines = self.run("cat", f"/proc/{self.pid(part)}/status").splitlines()
        return {name: value.strip() for name, _, value in (one.partition(":") for one in lines)}

    def journal(self, part: str) -> str:
        return self.run("journalctl", "--no-pager", "-n", "40", "-u", f"persys-{part}")

    # State of the cluster.

    def node_status(self) -> str:
        shown = self.try_run("persysctl", "node", "list").stdout.splitlines()
        rows = (line.split() for line in shown)
        return next((row[1] for row in rows if row and row[0] == self.node_id), "")

    def container(self, workload_id: str) -> Container:
        (only,) = containers.inspect(containers.container_ids(self.node_id, workload_id))
        return only

    def _failed(self) -> str:
        return self.try_run("systemctl", "--failed", "--no-pager").stdout

    def send(self, data: bytes, *words: str) -> None:
        subprocess.run(
            ["docker", "exec", "-i", self.node_id, *words],
            input=data,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )


def _variables(part: str) -> str:
    return f"/etc/persys/{part}.env"


def packed_sources(*further: str, without: Sequence[str] = ()) -> bytes:
    """An archive of what an installation needs from the clone, except the paths in `without`."""

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        unwanted = name == "__pycache__" or name.endswith(".egg-info") or entry.name in without
        return None if unwanted else entry

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in (*_SOURCES, *further):
            tar.add(images.ROOT / name, name, filter=wanted)
    return content.getvalue()
