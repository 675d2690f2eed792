"""Hosts with a real systemd and sshd, each a container with a network namespace of its own.

`persys cluster create` sets them up as it would set up servers. Their agents use the Docker of this machine.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e import images
from e2e.cluster import BIN
from e2e.containers import docker
from e2e.systemd_host import SystemdHost

_SECONDS = 1200
_AGENT = """\
DOCKER_HOST=unix:///srv/docker.sock
PERSYS_VM_ENABLED=false
PERSYS_ADMISSION_CPU_PERCENT=100
PERSYS_ADMISSION_MEMORY_PERCENT=100
PERSYS_ADMISSION_DISK_PERCENT=100
"""


class SshHost(SystemdHost):
    """`user` connects; a user other than root uses sudo."""

    def __init__(self, directory: Path, public_key: str, *, user: str = "root") -> None:
        super().__init__(directory)
        self.user = user
        self._public_key = public_key

    def build_image(self, directory: Path) -> str:
        return images.build_ssh_host(directory)

    @property
    def address(self) -> str:
        return docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", self.node_id)

    def prepare(self) -> None:
        """What an administrator does before: a user, a key, and the settings of the agent."""
        self.wait_until_booted()
        folder = "/srv/ssh"
        if self.user != "root":
            self.run("useradd", "--create-home", "--shell", "/bin/sh", self.user)
            rule = f"{self.user} ALL=(ALL) NOPASSWD: ALL\n"
            self.write("/etc/sudoers.d/persys", rule, mode="440")
        self.write(f"{folder}/authorized_keys", self._public_key, mode="644")
        self.write(
            "/etc/ssh/sshd_config.d/keys.conf", f"AuthorizedKeysFile {folder}/authorized_keys\n"
        )
        self.run("systemctl", "restart", "ssh")
        self.write("/etc/persys/agent.env", _AGENT)
        # Compilation takes most of the time of an installation.
        self.write("/etc/pip.conf", "[install]\nno-compile = true\n", mode="644")


class Administrator:
    """Runs `persys` and `persysctl` with a home directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.home = directory
        self._key = directory / "key"
        self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key))
        self.public_key = self._key.with_suffix(".pub").read_text()

    def create(
        self, hosts: Sequence[SshHost], *words: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        named = ",".join(f"{host.user}@{host.address}" for host in hosts)
        ssh = ("StrictHostKeyChecking=accept-new", f"UserKnownHostsFile={self.home / 'known'}")
        return self._try(
            *(str(BIN / "persys"), "cluster", "create", "--hosts", named, *words),
            *("--identity", str(self._key)),
            *(part for option in ssh for part in ("--ssh-option", option)),
            **variables,
        )

    def persysctl(self, *words: str) -> str:
        return self._run(str(BIN / "persysctl"), *words)

    def _run(self, *words: str) -> str:
        ended = self._try(*words)
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def _try(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **variables},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
