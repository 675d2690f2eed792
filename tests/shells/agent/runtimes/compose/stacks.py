"""Compose stacks of a real agent: the agent, its stacks and their containers."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import compose_binaries
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import docker, eventually

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

BINARIES = {"v1": compose_binaries.V1, "v2": compose_binaries.V2}
# For tests whose calls to Docker hardly depend on the version: v1 only in `make test-full`.
V1_IF_FULL = (pytest.param("v1", marks=pytest.mark.full), "v2")
WITHIN = 60.0


@contextmanager
def stack_agent(
    agent_in: Callable[..., "Agent"],
    directory: Path,
    binary: str = compose_binaries.V2,
    *,
    reconcile_interval: str = "1h",
    **environment: str,
) -> Iterator["Agent"]:
    """An agent with this Compose. Networks and volumes of its stacks are removed at the end."""
    agent = agent_in(
        directory,
        PERSYS_RECONCILE_INTERVAL=reconcile_interval,
        PERSYS_COMPOSE_ENABLED="true",
        PERSYS_COMPOSE_BINARY=binary,
        **environment,
    )
    agent.start()
    with closing(agent):
        yield agent
    for kind in ("network", "volume"):
        listed = docker(kind, "ls", "-q", "--filter", f"label=persys.node_id={agent.node_id}")
        for name in listed.split():
            docker(kind, "rm", name)


def apply(
    agent: "Agent",
    workload_id: str,
    text: str = "",
    *,
    revision: str = "r1",
    desired: agent_pb2.DesiredState = agent_pb2.DESIRED_STATE_RUNNING,
    stop_after: int = 0,
    run_once: bool = False,
    **parts: Any,
) -> agent_pb2.ApplyWorkloadResponse:
    """Apply a stack from `text`, or from git if `parts` have a repository."""
    compose = agent_pb2.ComposeSpec(compose_yaml=dedent(text), **parts)
    request = agent_pb2.ApplyWorkloadRequest(
        id=workload_id,
        type=agent_pb2.WORKLOAD_TYPE_COMPOSE,
        revision_id=revision,
        desired_state=desired,
        spec=agent_pb2.WorkloadSpec(compose=compose),
        stop_after_seconds=stop_after,
        run_once=run_once,
    )
    response: agent_pb2.ApplyWorkloadResponse = agent.stub.ApplyWorkload(request, timeout=10)
    return response


def services(agent: "Agent", workload_id: str) -> dict[str, dict[str, Any]]:
    """Existing containers by service; one may be replaced during the call."""
    command = ["docker", "inspect", *agent.containers(workload_id)]
    result = subprocess.run(command, capture_output=True, timeout=60, check=False)
    found = json.loads(result.stdout or "[]")
    return {one["Config"]["Labels"]["com.docker.compose.service"]: one for one in found}


def runs(agent: "Agent", workload_id: str) -> dict[str, tuple[str, str]]:
    """Container id and start time of each service; a restart changes one of them."""
    found = services(agent, workload_id)
    return {name: (one["Id"], one["State"]["StartedAt"]) for name, one in found.items()}


def until(holds: Callable[[], bool]) -> None:
    eventually(holds, "the stack is as expected", within=WITHIN)
