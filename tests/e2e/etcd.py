"""A real etcd that a test can stop, pause, wipe and fill."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from e2e.process import Process, free_port, listens_on


class Member(NamedTuple):
    """A member of an etcd cluster."""

    name: str
    port: int
    peer_port: int

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"


class Etcd(Process):
    def __init__(self, directory: Path, *flags: str, member: Member | None = None) -> None:
        """A single member, unless `member` is given and a flag names the others."""
        own = member or Member("default", free_port(), free_port())
        client = f"http://127.0.0.1:{own.port}"
        self.endpoint = f"127.0.0.1:{own.port}"
        self._data = directory / "data"
        super().__init__(
            [
                "etcd",
                f"--name={own.name}",
                f"--data-dir={self._data}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={own.peer}",
                f"--initial-advertise-peer-urls={own.peer}",
                *([] if member else [f"--initial-cluster={own.name}={own.peer}"]),
                *flags,
            ],
            {},
            log=directory / "etcd.log",
            ready=lambda: listens_on(own.port),
        )

    def lose_data(self) -> None:
        """Stop it and delete its data."""
        if self.runs:
            self.kill()
        shutil.rmtree(self._data)

    def wipe(self) -> None:
        """Delete its data and start it again, empty."""
        self.lose_data()
        self.start()

    def etcdctl(self, *command: str) -> str:
        """Run etcdctl with these arguments."""
        result = subprocess.run(
            ["etcdctl", "--endpoints", self.endpoint, *command],
            env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return result.stdout


def three_members(directory: Path) -> list[Etcd]:
    """They must be launched together: a single one does not become ready."""
    members = [Member(f"m{number}", free_port(), free_port()) for number in range(3)]
    together = ",".join(f"{one.name}={one.peer}" for one in members)
    created = []
    for one in members:
        own = directory / one.name
        own.mkdir()
        created.append(Etcd(own, f"--initial-cluster={together}", member=one))
    return created
