"""The Debian packages of `make deb`, and hosts with them."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

from e2e import images
from e2e.systemd_host import PARTS, SystemdHost

PACKAGES = {f"persys-{name}" for name in (*PARTS, "common", "ctl", "federation")}
WORKLOAD = """\
id: {name}
type: container
resources: {{cpu_millicores: 30, memory_mb: 16}}
container: {{image: {image}, init: true, image_pull_policy: Never, command: [sleep, "3600"]}}
"""
_BUILD_SECONDS = 1200


def build_debs(directory: Path, version: str) -> Path:
    subprocess.run(
        [images.ROOT / "scripts" / "deb", directory],
        env={**os.environ, "VERSION": version},
        stdout=subprocess.DEVNULL,
        timeout=_BUILD_SECONDS,
        check=True,
    )
    return directory


class DebianHost(SystemdHost):
    def install_packages(self, directory: Path) -> str:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            tar.add(directory, "packages")
        self.run("rm", "-rf", "/srv/packages")
        self.send(content.getvalue(), "tar", "x", "-C", "/srv")
        return self.run("sh", "-c", "dpkg --install /srv/packages/*.deb")

    def exists(self, path: str) -> bool:
        return self.try_run("test", "-e", path, "-o", "-L", path).returncode == 0

    def changed_files(self) -> list[str]:
        """Files of the packages that are not as they were built. The image has no documents."""
        lines = self.try_run("dpkg", "--verify", *sorted(PACKAGES)).stdout.splitlines()
        return [line for line in lines if "/usr/share/doc" not in line and "/man1" not in line]

    def states(self) -> dict[str, str]:
        return {part: self.property(part, "ActiveState") for part in PARTS}

    def pids(self) -> dict[str, int]:
        return {part: self.pid(part) for part in PARTS}

    def is_ready(self) -> bool:
        return self.node_status() == "Ready"
