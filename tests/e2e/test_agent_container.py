"""The agent's image, started with the command of docs/how-to/production.md on a separate Docker."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from e2e import images
from e2e.cluster import BIN
from e2e.own_docker import OwnDocker
from e2e.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(images.BUILD_SECONDS + 300)]
BUILT = f"{images.PREFIX}/compute-agent:latest"
IMAGE = "persys/compute-agent:latest"
RUNTIME = Path(__file__).with_name("runc_known_capabilities.py")
# The mounted directories and the host name of the command are replaced by copies.
OWN_PLACES = """
hostname "$0"
mount -t tmpfs tmpfs "$1"
for place in /etc /var/lib; do
  changes="$1$place"
  mkdir -p "$changes/upper" "$changes/work"
  mount -t overlay overlay -o "lowerdir=$place,upperdir=$changes/upper,workdir=$changes/work" $place
done
mkdir -p /etc/persys /var/lib/persys
cp -r "$2" /etc/persys/certs
shift 2
exec "$@"
"""


def command_of_the_document() -> str:
    text = (images.ROOT / "docs" / "how-to" / "production.md").read_text("utf-8")
    (command,) = re.findall(r"^```sh\n(docker run -d .*?)^```$", text, re.M | re.S)
    return str(command)


class Host:
    """A host with its own Docker, host name, network and Persys files."""

    def __init__(self, directory: Path) -> None:
        self.name = f"host{uuid4().hex[:8]}"
        self._certs = directory / "dev" / "certs"
        (changes := directory / "changes").mkdir()
        subprocess.run(
            [images.ROOT / "scripts" / "dev-certs", directory / "dev"],
            env={"PERSYS_NODE_ID": self.name},
            timeout=120,
            check=True,
        )
        apart = ("unshare", "--mount", "--uts", "--propagation", "private", "sh", "-ec")
        self._docker = OwnDocker(
            *("--add-runtime", f"known={RUNTIME}", "--default-runtime", "known"),
            under=(*apart, OWN_PLACES, self.name, str(changes), str(self._certs)),
        )

    def start(self) -> None:
        self._docker.start()
        self.run("mount", "--bind", self._docker.host.removeprefix("unix://"), "/run/docker.sock")
        self._docker.copy_image(BUILT)
        self.run("docker", "tag", BUILT, IMAGE)

    def close(self) -> None:
        self._docker.close()

    def run(self, *words: str) -> str:
        done = self._enter(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def agent_health(self) -> str:
        admin = self._certs / "admin"
        named = ("--ca", "ca.crt"), ("--cert", "admin.crt"), ("--key", "admin.key")
        files = [word for flag, name in named for word in (flag, str(admin / name))]
        environment = ("env", "PERSYS_TLS_VERIFY=host", "PERSYS_INSECURE=false")
        done = self._enter(*environment, BIN / "persysctl", "agent", "health", *files)
        return done.stdout + done.stderr

    def _enter(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        enter = ("nsenter", "--mount", "--uts", "--net", "--target", str(self._docker.pid))
        return subprocess.run(
            [*enter, *words], capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    images.build_persys()
    created = Host(tmp_path)
    try:
        created.start()
        yield created
    finally:
        created.close()


def test_the_documented_command_starts_an_agent_with_every_runtime(host: Host) -> None:
    host.run("sh", "-ec", command_of_the_document())

    def healthy() -> int:
        return len(re.findall(r"\bhealthy\b", host.agent_health()))

    eventually(
        lambda: healthy() >= 3,
        lambda: host.agent_health() + host.run("docker", "logs", "persys-agent"),
        within=120,
    )
    shown = host.run("docker", "inspect", "--format", "{{.HostConfig.Privileged}}", "persys-agent")
    assert shown.strip() == "true"
    assert host.run("ls", "/var/lib/persys").split().count("state.db") == 1
