"""Time from kill -9 of the leader to the first placement by the next, over the lease; cost of a standby.

    python -m bench.ha

Three schedulers on etcd, with 10,000 stored workloads. The client always uses a standby.
"""

import asyncio
import json
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from time import monotonic, sleep
from typing import NamedTuple

import grpc

from bench.processes import cpu_seconds, etcd, scheduler, until
from bench.stored import commit_bare, marker_unit, node_units, units
from bench.verdict import Verdict, report
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

NODES = 100
WORKLOADS = 10_000
PER_TRANSACTION = 20
LEASE_SECONDS = 3
KILLS = 3
APPLIES = 1_000
ATTEMPT_SECONDS = 1.0


class Replica(NamedTuple):
    port: int
    metrics_port: int
    process: Popen[bytes]

    def role(self) -> str:
        url = f"http://127.0.0.1:{self.metrics_port}/health"
        with urllib.request.urlopen(url, timeout=10) as response:
            return str(json.loads(response.read())["role"])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, etcd(Path(directory)) as port:
        endpoint = f"127.0.0.1:{port}"
        asyncio.run(_fill(endpoint))
        with ExitStack() as stack:
            replicas = [_replica(stack, endpoint) for _ in range(3)]
            following = _following(replicas)
            taken = []
            for _ in range(KILLS):
                until(lambda: _roles(replicas) == ["leader", "standby", "standby"], "one leads")
                leader = next(replica for replica in replicas if replica.role() == "leader")
                replicas.remove(leader)
                taken.append(asyncio.run(_kill_and_place(leader, replicas[0])))
                replicas.append(_replica(stack, endpoint))
    report(
        Verdict(
            f"ha: leader killed to first placement over the lease, worst of {KILLS}",
            max(taken) / LEASE_SECONDS,
            at_most=1.5,
        ),
        Verdict("ha: CPU of a following standby over the leader's", following, at_most=0.5),
    )


def _replica(stack: ExitStack, endpoint: str) -> Replica:
    settings = {
        "ETCD_ENDPOINTS": endpoint,
        "SCHEDULER_LEADER_LEASE": f"{LEASE_SECONDS}s",
        "SCHEDULER_NODE_LEASE": "10m",
        "PERSYS_GRPC_ADDR": "127.0.0.1",
    }
    return Replica(*stack.enter_context(scheduler("etcd", **settings)))


def _roles(replicas: list[Replica]) -> list[str]:
    return sorted(replica.role() for replica in replicas)


def _following(replicas: list[Replica]) -> float:
    """CPU of the standbys while the leader processes applies."""
    until(lambda: _roles(replicas) == ["leader", "standby", "standby"], "one leads")
    leader = next(replica for replica in replicas if replica.role() == "leader")
    standby = next(replica for replica in replicas if replica.role() == "standby")
    sleep(2)  # past the start
    before = {replica: cpu_seconds(replica.process.pid) for replica in (leader, standby)}
    asyncio.run(_apply_many(leader))
    used = {
        replica: cpu_seconds(replica.process.pid) - before[replica] for replica in (leader, standby)
    }
    return used[standby] / used[leader]


async def _apply_many(leader: Replica) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{leader.port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        for first in range(0, APPLIES, 20):
            names = [f"followed-{number}" for number in range(first, first + 20)]
            await asyncio.gather(
                *(stub.ApplyWorkload(_request(name), timeout=30) for name in names)
            )


async def _kill_and_place(leader: Replica, standby: Replica) -> float:
    name = f"after-{leader.port}"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{standby.port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        await stub.GetMode(control_pb2.GetModeRequest(), timeout=10)
        leader.process.kill()
        killed_at = monotonic()
        while True:
            try:
                response = await stub.ApplyWorkload(_request(name), timeout=ATTEMPT_SECONDS)
            except grpc.aio.AioRpcError:
                continue
            if response.success:
                found = await stub.GetWorkload(
                    control_pb2.GetWorkloadRequest(workload_id=name), timeout=ATTEMPT_SECONDS
                )
                assert found.workload.assigned_node_id
                return monotonic() - killed_at


def _request(name: str) -> control_pb2.ApplyWorkloadRequest:
    return control_pb2.ApplyWorkloadRequest(
        workload_id=name,
        spec=control_pb2.WorkloadSpec(
            type="container",
            resources=control_pb2.ResourceRequirements(cpu_millicores=10, memory_mb=1),
            container=control_pb2.ContainerSpec(image="registry.example/team/service:1.2.3"),
        ),
    )


async def _fill(endpoint: str) -> None:
    store = await EtcdStore.open(EtcdOptions(endpoints=(endpoint,)))
    stored = [marker_unit(), *node_units(NODES), *units(WORKLOADS, nodes=NODES)]
    await commit_bare(store, stored, PER_TRANSACTION)
    await store.close()


if __name__ == "__main__":
    main()
