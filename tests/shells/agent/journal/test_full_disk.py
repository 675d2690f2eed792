"""A real agent whose journal is on a full disk, until space is freed."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
DISK_MB = 2
ORDERS_MAX = 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", where], check=True)
    yield where
    subprocess.run(["umount", where], check=True)


@pytest.fixture
def agent(small_disk: Path, new_agent: Callable[..., "Agent"], free_port: int) -> Iterator["Agent"]:
    created = new_agent(
        PERSYS_STATE_PATH=str(small_disk / "state.db"), PERSYS_METRICS_PORT=str(free_port)
    )
    created.start()
    yield created
    created.close()  # before its disk is removed


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass


def health(port: int) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/health")
    found: dict[str, Any] = json.load(connection.getresponse())
    connection.close()
    return found


def applied_until_refused(
    agent: "Agent", spec: agent_pb2.ContainerSpec
) -> tuple[list[str], grpc.RpcError]:
    acknowledged: list[str] = []
    for number in range(ORDERS_MAX):
        try:
            agent.apply(f"during-{number}", spec, desired=agent_pb2.DESIRED_STATE_STOPPED)
        except grpc.RpcError as err:
            return acknowledged, err
        acknowledged.append(f"during-{number}")
    raise AssertionError("the disk is not full")


def test_an_agent_on_a_full_disk_reports_it_and_loses_no_order(
    agent: "Agent", small_disk: Path, sleeper: agent_pb2.ContainerSpec, free_port: int
) -> None:
    agent.apply("before", sleeper)
    agent.wait_for("before", RUNNING)
    containers = agent.containers("before")
    large = agent_pb2.ContainerSpec()
    large.CopyFrom(sleeper)
    large.env["LARGE"] = "x" * 50_000

    fill(small_disk / "filler")
    acknowledged, refused = applied_until_refused(agent, large)

    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert "disk is full" in (refused.details() or "")
    assert health(free_port)["status"] == "degraded"
    assert "disk is full" in health(free_port)["journal"]

    agent.stop()
    agent.start()
    agent.wait_for("before", RUNNING)
    assert agent.containers("before") == containers
    assert all(agent.knows(name) for name in acknowledged)

    (small_disk / "filler").unlink()
    agent.apply("after", sleeper)
    agent.wait_for("after", RUNNING)
    assert health(free_port)["journal"] == "ok"
