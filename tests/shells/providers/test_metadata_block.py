"""The block of the metadata service, with a container and the network of a machine in namespaces.

container 10.99.0.2 -- 10.99.0.1 machine 10.99.1.1 -- 10.99.1.2, 169.254.169.254 provider
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from persys.providers.user_data import BLOCK_SCRIPT, Boot, user_data

METADATA = "169.254.169.254"
OTHER = "10.99.1.2"
SERVED = "served"
SERVER = f"""
import selectors, socket
ready = selectors.DefaultSelector()
for address in ({METADATA!r}, {OTHER!r}):
    for port in (80, 53):
        ready.register(socket.create_server((address, port)), selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        connection, _ = key.fileobj.accept()
        connection.sendall(b"{SERVED}")
        connection.close()
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def run(*command: str, check: bool = True, timeout: float = 60) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0 or not check, f"{command}: {done.stderr}"
    return done.stdout


class Network:
    """A machine, the provider's network behind it, and a container on the machine."""

    def __init__(self, image: str, folder: Path) -> None:
        self.name = f"pm{uuid4().hex[:6]}"
        self.machine, self.provider = f"{self.name}-m", f"{self.name}-p"
        self.container = run(
            *("docker", "run", "--detach", "--network", "none", "--name", self.name),
            *(image, "sleep", "600"),
        ).strip()
        pid = run("docker", "inspect", "--format", "{{.State.Pid}}", self.container).strip()
        self._of_container = ("nsenter", "--net", "--target", pid)
        self._link(pid)
        self._server = subprocess.Popen(
            ["ip", "netns", "exec", self.provider, sys.executable, "-c", SERVER]
        )
        self.script = folder / "block"
        boot = Boot("n", "c", ("10.0.0.1:8085",), "", timedelta(minutes=10))
        files = yaml.safe_load(user_data(boot))["write_files"]
        self.script.write_text(next(one["content"] for one in files if one["path"] == BLOCK_SCRIPT))

    def _link(self, pid: str) -> None:
        for namespace in (self.machine, self.provider):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        on_machine = ("ip", "-n", self.machine)
        run(
            "ip",
            "link",
            "add",
            "c0",
            "netns",
            self.machine,
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            pid,
        )
        run(
            "ip",
            "link",
            "add",
            "p0",
            "netns",
            self.machine,
            "type",
            "veth",
            "peer",
            "m0",
            "netns",
            self.provider,
        )
        run(*on_machine, "address", "add", "10.99.0.1/24", "dev", "c0")
        run(*on_machine, "address", "add", "10.99.1.1/24", "dev", "p0")
        for device in ("c0", "p0"):
            run(*on_machine, "link", "set", device, "up")
        run(*on_machine, "route", "add", METADATA, "via", OTHER)
        run("ip", "netns", "exec", self.machine, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        on_provider = ("ip", "-n", self.provider)
        run(*on_provider, "address", "add", f"{OTHER}/24", "dev", "m0")
        run(*on_provider, "address", "add", f"{METADATA}/32", "dev", "lo")
        run(*on_provider, "link", "set", "m0", "up")
        run(*on_provider, "route", "add", "10.99.0.0/24", "via", "10.99.1.1")
        run(*self._of_container, "ip", "address", "add", "10.99.0.2/24", "dev", "eth0")
        run(*self._of_container, "ip", "link", "set", "eth0", "up")
        run(*self._of_container, "ip", "route", "add", "default", "via", "10.99.0.1")

    def block(self, tool: str) -> None:
        if tool == "iptables":  # as if nft was not installed
            self.script.write_text(self.script.read_text().replace("command -v nft", "false"))
        run("ip", "netns", "exec", self.machine, "sh", str(self.script))

    def container_reaches(self, address: str, port: int = 80) -> bool:
        command = ("docker", "exec", self.container, "nc", "-w", "3", address, str(port))
        return SERVED in run(*command, check=False)

    def machine_reaches(self, address: str, port: int = 80) -> bool:
        enter = ("ip", "netns", "exec", self.machine)
        return SERVED in run(*enter, "busybox", "nc", "-w", "3", address, str(port), check=False)

    def wait_until_served(self) -> None:
        deadline = time.monotonic() + 60
        while not all(
            self.container_reaches(address, port)
            for address in (METADATA, OTHER)
            for port in (80, 53)
        ):
            assert time.monotonic() < deadline, "the servers do not respond"
            time.sleep(0.1)

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        run("docker", "rm", "--force", self.container, check=False)
        for namespace in (self.machine, self.provider):
            run("ip", "netns", "delete", namespace, check=False)


@pytest.fixture
def network(demo_image: str, tmp_path: Path) -> Iterator[Network]:
    made = Network(demo_image, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("tool", ["nft", "iptables"])
def test_a_container_does_not_reach_the_metadata_service(network: Network, tool: str) -> None:
    network.wait_until_served()

    network.block(tool)
    network.block(tool)  # at the next boot

    assert not network.container_reaches(METADATA)
    assert network.machine_reaches(METADATA), "cloud-init needs it"
    assert network.container_reaches(METADATA, 53), "some clouds serve DNS there"
    assert network.container_reaches(OTHER)
