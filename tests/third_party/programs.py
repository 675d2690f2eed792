"""Third-party programs and ours as processes, used only through the contract."""

import json
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on
from persys.infra.tls.certificates import CertificateFiles
from persys.model.identity import Role
from root_ca import Root

TESTS = Path(__file__).resolve().parents[1]
# As operators configure it: these agents have names that all nodes share.
CN_ROLES = "compute-agent=agent,persysctl=operator"
POLL_SECONDS = 1.0
DRIFT_SECONDS = 3.0
SCHEDULER_SETTINGS = {
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_LEASE": "12s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "3s",
    "SCHEDULER_MISSING_GRACE_PERIOD": "1s",
    "SCHEDULER_DRIFT_DETECT_INTERVAL": f"{DRIFT_SECONDS:g}s",
    "SCHEDULER_AGENT_STATUS_POLL_INTERVAL": f"{POLL_SECONDS:g}s",
    "PERSYS_TLS_CN_ROLES": CN_ROLES,
}


def files_of(files: CertificateFiles) -> dict[str, str]:
    return {"ca": str(files.roots), "cert": str(files.certificate), "key": str(files.key)}


class Program(Process):
    """A third-party program. Its behaviour can be changed while it runs."""

    def __init__(self, name: str, folder: Path, **settings: Any) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._config = folder / "config.json"
        self._settings = {
            "listen": self.address,
            "folder": str(folder),
            "behaviour": {},
            **settings,
        }
        self._write()
        super().__init__(
            [sys.executable, "-m", f"third_party.{name}", str(self._config)],
            {"PYTHONPATH": str(TESTS), "HOME": str(folder)},
            log=folder / "log",
            ready=lambda: listens_on(self.port),
        )

    def set_behaviour(self, **changed: Any) -> None:
        self._settings["behaviour"] |= changed
        self._write()

    def _write(self) -> None:
        part = self._config.with_suffix(".part")
        part.write_text(json.dumps(self._settings))
        part.rename(self._config)


class Agent(Program):
    def __init__(self, folder: Path, node_id: str, scheduler: str, **settings: Any) -> None:
        super().__init__("agent", folder, node_id=node_id, scheduler=scheduler, **settings)
        self.node_id = node_id

    def events(self, what: str, workload_id: str) -> list[float]:
        """The times of these events, in order."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = map(json.loads, lines)
        return [
            event["at"]
            for event in found
            if (event["what"], event["workload_id"]) == (what, workload_id)
        ]

    def file(self, workload_id: str) -> Path:
        """The file of a workload, if the agent uses the file runtime."""
        return self.folder / "runtime" / f"{workload_id}.json"

    def copy(self, workload_id: str) -> dict[str, str]:
        """State and revision; empty if the workload is absent."""
        path = self.file(workload_id)
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found


def our_scheduler(
    folder: Path, root: Root | None, settings: Mapping[str, str] | None = None
) -> tuple[Process, str]:
    """The process and its address."""
    port = free_port()
    security: dict[str, str] = {}
    if root is not None:
        files = root.write(Role.SCHEDULER, "s1", hosts=("127.0.0.1",))
        security = root.variables(files)
    process = Process(
        [str(BIN / "persys-scheduler"), *(["-insecure"] if root is None else [])],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(free_port()),
            "PERSYS_STORE": f"sqlite:{folder / 'scheduler.db'}",
            **SCHEDULER_SETTINGS,
            **security,
            **(settings or {}),
        },
        log=folder / "scheduler.log",
        ready=lambda: listens_on(port),
    )
    return process, f"127.0.0.1:{port}"


def machine_in_agents_form(disk: Path, **changed: Any) -> str:
    """`persys.vm_spec_b64` of a small VM that boots from a disk of its node."""
    spec = {
        "vcpus": 1,
        "memory_mb": 160,
        "disks": [{"path": str(disk), "device": "vda", "format": "qcow2", "boot": True}],
        "networks": [{"network": "default", "mac_address": "52:54:00:11:22:33"}],
        **changed,
    }
    return b64encode(json.dumps(spec).encode()).decode()
