"""A VM with the real cloud-init. It is built if missing, started early and checked late."""

import os
import select
import subprocess
import sys
import threading
import time
import tty
import uuid
from pathlib import Path

from e2e.cluster import Cluster
from e2e.vms import GUESTS, add_image, virsh
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

BUILD = Path(__file__).resolve().parents[2] / "scripts" / "guest" / "cloud"
BUILD_SECONDS = 1200
MARK = "cloud-init-was-here"
USER = "visitor"
PASSWORD = "open-sesame"
USER_DATA = f"""#cloud-config
locale: C.UTF-8
write_files:
  - path: /etc/by-user-data
    content: {MARK}
"""
VENDOR_DATA = f"""#cloud-config
runcmd:
  - echo {MARK} >/etc/by-vendor-data
"""
META_DATA = f"shelf: {MARK}\n"
NETWORK_CONFIG = """version: 2
ethernets:
  first:
    match: {{macaddress: "{mac_address}"}}
    dhcp4: true
    mtu: 1400
"""


class CloudGuest:
    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.name = f"{cluster.node_id}-cloud"
        self._cluster = cluster
        self._key = directory / "key"
        self._problem = ""
        self._thread = threading.Thread(target=self._begin, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def wait_until_done(self, *, within: float) -> None:
        self._thread.join(BUILD_SECONDS)
        assert not self._thread.is_alive(), "the guest is still being built"
        assert not self._problem, self._problem
        self._cluster.wait_for(self.name, "Running", within=within)
        eventually(lambda: self._address() != "", "it has an address", within=within)
        eventually(lambda: self._ssh("true").returncode == 0, "it lets one in", within=within)
        self.ssh("sudo", "cloud-init", "status", "--wait")

    def ssh(self, *words: str) -> str:
        done = self._ssh(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def log_in(self, user: str, password: str, command: str, *, answer: str) -> None:
        """Log in on the serial console with a password and run a command until it prints the answer."""
        line = os.open(virsh("ttyconsole", self.name), os.O_RDWR | os.O_NOCTTY)
        try:
            tty.setraw(line)
            _ask(line, "", until="login:")
            _ask(line, user, until="assword:")
            _ask(line, password, until="$")
            _ask(line, command, until=answer)
        finally:
            os.close(line)

    def _begin(self) -> None:
        try:
            _run("nice", sys.executable, str(BUILD))
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key))
            add_image(self._cluster, "cloud", GUESTS / "cloud.qcow2")
            self._cluster.apply(self.name, self._spec())
        except AssertionError as err:
            self._problem = str(err)

    def _spec(self) -> pb.WorkloadSpec:
        hashed = _run("openssl", "passwd", "-6", PASSWORD).strip()
        mac_address = f"52:54:00:{':'.join(uuid.uuid4().hex[n : n + 2] for n in (0, 2, 4))}"
        card = pb.NetworkConfig(bridge="default", dhcp=True, mac_address=mac_address)
        key = self._key.with_suffix(".pub").read_text().strip()
        return pb.WorkloadSpec(
            type="vm",
            vm=pb.VMSpec(
                vcpus=1,
                memory_mb=384,
                os_image="cloud",
                networks=[card],
                cloud_init=pb.CloudInitConfig(
                    user_data=USER_DATA,
                    meta_data=META_DATA,
                    network_config=NETWORK_CONFIG.format(mac_address=mac_address),
                    vendor_data=VENDOR_DATA,
                ),
                login=pb.VMLogin(user=USER, ssh_keys=[key], password_hash=hashed),
                stop_grace_seconds=1,
            ),
        )

    def _address(self) -> str:
        view = self._cluster.client.get_workload(self.name)
        return view.metadata.get("vm.primary_ip", "")

    def _ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes")
        return subprocess.run(
            ["ssh", "-q", "-i", str(self._key), "-o", "ConnectTimeout=10"]
            + [word for option in options for word in ("-o", option)]
            + [f"{USER}@{self._address()}", *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def _run(*command: str) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}{result.stdout}"
    return result.stdout


def _ask(line: int, text: str, *, until: str) -> None:
    os.write(line, f"{text}\n".encode())
    shown, end = "", time.monotonic() + 120
    while until not in shown:
        assert time.monotonic() < end, f"no {until!r} in {shown!r}"
        if select.select([line], [], [], 1)[0]:
            shown += os.read(line, 4096).decode(errors="replace")
