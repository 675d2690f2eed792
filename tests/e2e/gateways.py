"""A real gateway process in front of one or more clusters."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.model.identity import Role
from root_ca import Root


class Gateway:
    def __init__(
        self,
        directory: Path,
        clusters: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`clusters` maps cluster ids to scheduler addresses; the first is the default."""
        self.port = free_port()
        scheme = "http" if settings is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        file = directory / "cluster.yaml"
        file.write_text(_cluster_yaml(clusters))
        self.process = Process(
            [str(BIN / "persys-gateway"), *(["-insecure"] if settings is None else [])],
            {
                "PERSYS_GATEWAY_ADDR": "127.0.0.1",
                "PERSYS_GATEWAY_PORT": str(self.port),
                "PERSYS_GATEWAY_PUBLIC_ADDR": "127.0.0.1",
                "PERSYS_GATEWAY_PUBLIC_PORT": str(free_port()),
                "PERSYS_GATEWAY_CLUSTER_CONFIG": str(file),
                "PERSYS_GATEWAY_AUDIT_DB": str(directory / "audit.db"),
                **(settings or {}),
            },
            log=directory / "gateway.log",
            ready=lambda: listens_on(self.port),
        )


@contextmanager
def a_guarded_gateway(directory: Path) -> Iterator[tuple[Gateway, SchedulerClient]]:
    """A gateway with TLS in front of a scheduler without nodes, and the credentials of an administrator."""
    root = Root(directory / "certs")
    port = free_port()
    scheduler = Process(
        [str(BIN / "persys-scheduler")],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(free_port()),
            "PERSYS_STORE": f"sqlite:{directory / 'scheduler.db'}",
            **root.variables(root.write(Role.SCHEDULER, "s1")),
        },
        log=directory / "scheduler.log",
        ready=lambda: listens_on(port),
    )
    files = root.write(Role.GATEWAY, "g1", hosts=("127.0.0.1",))
    gateway = Gateway(directory, {"main": f"127.0.0.1:{port}"}, root.variables(files))
    try:
        scheduler.start()
        gateway.process.start()
        trust = Trust(root.write(Role.ADMIN, "me"))
        with SchedulerClient(f"127.0.0.1:{port}", trust=trust) as client:
            yield gateway, client
    finally:
        gateway.process.close()
        scheduler.close()


def _cluster_yaml(clusters: Mapping[str, str]) -> str:
    entries = "".join(
        f"  - id: {name}\n    schedulers: [{{address: '{address}'}}]\n"
        for name, address in clusters.items()
    )
    return f"clusters:\n{entries}"
