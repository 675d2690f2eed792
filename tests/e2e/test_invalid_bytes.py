"""Bytes that are not gRPC, sent to every port of a running cluster."""

import random
import socket
from collections.abc import Callable
from contextlib import suppress

from e2e.cluster import Cluster
from persys.wire.gen.control.v1 import control_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GARBAGE = (
    random.Random(7).randbytes(200_000),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes.fromhex("16030100a5010000a10303") + bytes(160),
    PREFACE[:10],
    PREFACE + random.Random(8).randbytes(5_000),
    PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(50_000),
    b"",
)


def test_invalid_bytes_on_a_port_do_not_affect_the_cluster(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(1), names(1)
    before = cluster.run_all(some, sleeper)
    pids = cluster.scheduler.pid, cluster.agent.pid

    for garbage in GARBAGE:
        for port in (cluster.scheduler_port, cluster.agent_port, cluster.metrics_port):
            for _ in range(20):
                _send(port, garbage)
    cluster.run_all(late, sleeper)

    assert cluster.containers(some) == before
    assert cluster.scheduler.runs
    assert cluster.agent.runs
    assert (cluster.scheduler.pid, cluster.agent.pid) == pids
    assert cluster.node().status == "Ready"


def _send(port: int, data: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
        suppress(OSError),  # it may close the connection
    ):
        connection.sendall(data)
