"""A real gateway as a process, before one or more clusters."""

from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on


class Gateway:
    def __init__(
        self,
        directory: Path,
        clusters: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`clusters` are addresses of schedulers, by the cluster's id; the first is the default."""
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


def _cluster_yaml(clusters: Mapping[str, str]) -> str:
    entries = "".join(
        f"  - id: {name}\n    schedulers: [{{address: '{address}'}}]\n"
        for name, address in clusters.items()
    )
    return f"clusters:\n{entries}"
