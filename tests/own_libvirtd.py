"""A second libvirtd on the host, which a test can freeze, kill and start again.

It has its own directories in place of the usual ones (a private mount namespace), so the two are independent;
its network has its own bridge and addresses. Guests outlive it, as always with libvirtd.
"""

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

DEADLINE_SECONDS = 60
PLACES = {
    "run": Path("/run/libvirt"),
    "lib": Path("/var/lib/libvirt"),
    "cache": Path("/var/cache/libvirt"),
    "etc": Path("/etc/libvirt"),
}
QEMU_CONF = 'namespaces = []\nstdio_handler = "file"\n'


class OwnLibvirtd:
    def __init__(self) -> None:
        # Not below tmp_path: QEMU runs as another user, who cannot read it.
        self.directory = Path(tempfile.mkdtemp(prefix="libvirtd-", dir="/var/tmp"))
        self.directory.chmod(0o755)
        self.uri = f"qemu+unix:///system?socket={self.directory}/run/libvirt-sock"
        self._process: subprocess.Popen[bytes] | None = None
        for name in PLACES:
            (self.directory / name).mkdir()
        (self.directory / "etc" / "qemu.conf").write_text(QEMU_CONF)
        (self.directory / "no-kvm").touch(mode=0o600)

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", self._script()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + DEADLINE_SECONDS
        while self.virsh("version", check=False).returncode:
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < end, "the second libvirtd does not respond"
            time.sleep(0.1)
        if "default" not in self.virsh("net-list", "--all", "--name").stdout.split():
            self._define_network()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def virsh(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["virsh", "-q", "-c", self.uri, *words],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=check,
        )

    def domains(self) -> list[str]:
        return sorted(self.virsh("list", "--all", "--name").stdout.split())

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            for name in self.virsh("list", "--name").stdout.split():
                self.virsh("destroy", name, check=False)
            self.virsh("net-destroy", "default", check=False)
            self.kill()
        shutil.rmtree(self.directory)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _script(self) -> str:
        """`exec` keeps the process, so that its id is that of the daemon."""
        mounts = [
            f"mkdir -p {there} && mount --bind {self.directory / name} {there}"
            for name, there in PLACES.items()
        ]
        return "\n".join(
            [
                "mount --make-rslave /",
                *mounts,
                f"[ ! -e /dev/kvm ] || mount --bind {self.directory / 'no-kvm'} /dev/kvm",
                f"exec libvirtd --pid-file {self.directory / 'pid'}",
            ]
        )

    def _define_network(self) -> None:
        bridge = f"pvb{uuid.uuid4().hex[:8]}"
        net = f"10.{random.randint(100, 250)}.{random.randint(1, 250)}"
        path = self.directory / "network.xml"
        path.write_text(
            f"<network><name>default</name><forward mode='nat'/><bridge name='{bridge}'/>"
            f"<ip address='{net}.1' netmask='255.255.255.0'>"
            f"<dhcp><range start='{net}.2' end='{net}.254'/></dhcp></ip></network>"
        )
        self.virsh("net-define", str(path))
        self.virsh("net-start", "default")
