"""An order that crashes the agent is quarantined; an external kill quarantines nothing."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
STARTS_MAX = 6
KILLS = 5  # more than the crashes after which an order is quarantined


def start_until(agent: "Agent", failpoint: str, holds: Callable[[], bool]) -> int:
    """Start the agent repeatedly, as systemd does. Returns the number of starts."""
    for count in range(1, STARTS_MAX + 1):
        try:
            agent.start(failpoint=failpoint)
            while not holds():
                assert not agent.is_dead
                time.sleep(0.05)
            return count
        except (AssertionError, grpc.RpcError):
            agent.wait_until_dead()
    raise AssertionError(f"not within {STARTS_MAX} starts")


@pytest.mark.parametrize("fault", ["segfault", "exit"])
def test_an_order_that_crashes_the_agent_is_quarantined(
    new_agent: Callable[..., "Agent"], sleeper: agent_pb2.ContainerSpec, fault: str
) -> None:
    agent = new_agent()
    failpoint = f"agent.step@bad={fault}"
    agent.start(failpoint=failpoint)
    agent.apply("good", sleeper)
    agent.wait_for("good", RUNNING)
    containers = agent.containers("good")
    with suppress(grpc.RpcError):
        agent.apply("bad", sleeper)
    agent.wait_until_dead()

    starts = start_until(
        agent, failpoint, lambda: agent.status("bad").metadata.get("reason_code") == "Quarantined"
    )

    assert starts == 3  # it was alone at the first two
    status = agent.status("bad")
    assert status.actual_state == FAILED
    assert "it crashed the agent 2 times" in status.message
    agent.wait_for("good", RUNNING)
    assert agent.containers("good") == containers

    agent.stop()
    agent.start()
    agent.apply("bad", sleeper, revision="r2")
    agent.wait_for("bad", RUNNING)


def test_external_kills_quarantine_nothing(
    new_agent: Callable[..., "Agent"], sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent()
    agent.start(failpoint="agent.step@web")
    with suppress(grpc.RpcError):
        agent.apply("web", sleeper)
    agent.wait_until_dead()

    for _ in range(KILLS):
        with suppress(AssertionError):
            agent.start(failpoint="agent.step@web")
        agent.wait_until_dead()
    agent.start()

    agent.wait_for("web", RUNNING)
    assert not agent.logged("workload.quarantined")
