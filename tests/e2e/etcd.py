"""A real etcd: stopped, paused, wiped and filled as a test likes."""

import shutil
import subprocess
from pathlib import Path

from e2e.process import Process, free_port, listens_on


class Etcd(Process):
    def __init__(self, directory: Path, *flags: str) -> None:
        port, peer_port = free_port(), free_port()
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        self.endpoint = f"127.0.0.1:{port}"
        self._data = directory / "data"
        super().__init__(
            [
                "etcd",
                f"--data-dir={self._data}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                *flags,
            ],
            {},
            log=directory / "etcd.log",
            ready=lambda: listens_on(port),
        )

    def wipe(self) -> None:
        """Its disk is lost; it comes back, and has nothing."""
        self.kill()
        shutil.rmtree(self._data)
        self.start()

    def tell(self, *command: str) -> str:
        """What an operator would type after etcdctl."""
        done = subprocess.run(
            ["etcdctl", "--endpoints", self.endpoint, *command],
            env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout
