"""Three scheduler processes on an etcd cluster of three members."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from e2e.cluster import BIN
from e2e.etcd import Etcd, three_members
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually

LEASE_SECONDS = 3


class SchedulerProcess(Process):
    def __init__(self, directory: Path, name: str, etcds: list[Etcd]) -> None:
        self.name = name
        self.port, self.side_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        super().__init__(
            [str(BIN / "persys-scheduler"), "-insecure"],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(self.port),
                "METRICS_PORT": str(self.side_port),
                "PERSYS_STORE": "etcd",
                "ETCD_ENDPOINTS": ",".join(etcd.endpoint for etcd in etcds),
                "SCHEDULER_LEADER_LEASE": f"{LEASE_SECONDS}s",
                "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
                "SCHEDULER_EVENTS_MAX": "100000",
            },
            log=directory / f"{name}.log",
            ready=lambda: listens_on(self.port),
        )

    def health(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.side_port}/health"
        with urllib.request.urlopen(url, timeout=5) as response:
            found: dict[str, Any] = json.loads(response.read())
        return found

    def metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.side_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as response:
            lines = response.read().decode().splitlines()
        return next(float(one.rpartition(" ")[2]) for one in lines if one.startswith(f"{name} "))

    @property
    def leads(self) -> bool:
        try:
            return self.runs and self.health()["role"] == "leader"
        except OSError:
            return False


class Schedulers:
    def __init__(self, directory: Path) -> None:
        self.etcds = three_members(directory)
        self.all = [
            SchedulerProcess(directory, f"scheduler-{number}", self.etcds) for number in range(3)
        ]
        self.addresses = ",".join(one.address for one in self.all)

    def start(self) -> None:
        """Returns when one is the leader."""
        self.start_etcd()
        for one in self.all:
            one.launch()
        self.wait_for_leader()

    def start_etcd(self) -> None:
        for etcd in self.etcds:
            etcd.launch()
        eventually(
            lambda: all(listens_on(int(one.endpoint.split(":")[1])) for one in self.etcds), "etcd"
        )

    def etcd_leader(self) -> Etcd:
        """The leader of the etcd cluster."""

        def leads(etcd: Etcd) -> bool:
            (status,) = json.loads(etcd.etcdctl("endpoint", "status", "-w", "json"))
            return bool(status["Status"]["leader"] == status["Status"]["header"]["member_id"])

        return next(etcd for etcd in self.etcds if leads(etcd))

    def wait_for_leader(self, *, other_than: "SchedulerProcess | None" = None) -> SchedulerProcess:
        found: list[SchedulerProcess] = []

        def one_leads() -> bool:
            found[:] = [one for one in self.all if one is not other_than and one.leads]
            return len(found) == 1

        eventually(one_leads, lambda: f"one to lead, and not {[one.name for one in found]}")
        return found[0]

    def wait_until_all_follow(self) -> None:
        eventually(
            lambda: (
                sorted(one.health()["role"] for one in self.all) == ["leader", "standby", "standby"]
            ),
            "one to lead and two to stand by",
        )

    def logs(self) -> dict[str, str]:
        return {one.name: one.log for one in self.all}

    def close(self) -> None:
        for one in (*self.all, *self.etcds):
            one.close()
