"""A real etcd of one member on free ports."""

from pathlib import Path

from e2e.process import Process, free_port, listens_on


class Etcd(Process):
    def __init__(self, directory: Path) -> None:
        port, peer_port = free_port(), free_port()
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        self.endpoint = f"127.0.0.1:{port}"
        super().__init__(
            [
                "etcd",
                f"--data-dir={directory / 'data'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            ],
            {},
            log=directory / "etcd.log",
            ready=lambda: listens_on(port),
        )
