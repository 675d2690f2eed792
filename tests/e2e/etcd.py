"""A real etcd: stopped, paused, wiped and filled as a test likes."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from e2e.process import Process, free_port, listens_on


class Member(NamedTuple):
    """One of those that are etcd together."""

    name: str
    port: int
    peer_port: int

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"


class Etcd(Process):
    def __init__(self, directory: Path, *flags: str, member: Member | None = None) -> None:
        """Alone, unless it is told as which member, and by a flag who the others are."""
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
        """Its disk is lost; it is down."""
        if self.runs:
            self.kill()
        shutil.rmtree(self._data)

    def wipe(self) -> None:
        """Its disk is lost; it comes back, and has nothing."""
        self.lose_data()
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


def three_members(directory: Path) -> list[Etcd]:
    """They have to be launched together: none is ready alone."""
    members = [Member(f"m{number}", free_port(), free_port()) for number in range(3)]
    together = ",".join(f"{one.name}={one.peer}" for one in members)
    made = []
    for one in members:
        own = directory / one.name
        own.mkdir()
        made.append(Etcd(own, f"--initial-cluster={together}", member=one))
    return made
