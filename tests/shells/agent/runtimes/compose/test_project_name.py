"""The project name of a stack: from its spec, fixed until deletion, and never one that is in use."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from shells.agent.conftest import FAILED, RUNNING, docker
from shells.agent.runtimes.compose.stacks import WITHIN, apply, runs, services, stack_agent

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

STACK = """
    services:
      web:
        image: persys-test
        command: ["sleep", "3600"]
        init: true
        volumes: ["data:/data"]
    volumes: {data: }
    """
PROJECT_LABEL = "com.docker.compose.project"


@pytest.fixture(scope="module")
def stacks(
    tmp_path_factory: pytest.TempPathFactory, agent_in: Callable[..., "Agent"], demo_image: str
) -> Iterator["Agent"]:
    with stack_agent(agent_in, tmp_path_factory.mktemp("projects")) as agent:
        yield agent


def project_of(agent: "Agent", workload_id: str) -> str:
    labels: dict[str, str] = services(agent, workload_id)["web"]["Config"]["Labels"]
    return labels[PROJECT_LABEL]


def test_a_stack_has_the_project_name_of_its_spec(stacks: "Agent", unique_id: str) -> None:
    name = f"shop-{unique_id}"
    apply(stacks, unique_id, STACK, project_name=name)

    status = stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert project_of(stacks, unique_id) == name
    assert status.metadata["compose.project"] == name
    assert services(stacks, unique_id)["web"]["Name"] == f"/{name}-web-1"
    assert json.loads(docker("volume", "inspect", f"{name}_data"))


def test_a_derived_project_name_is_unique_per_node(stacks: "Agent", unique_id: str) -> None:
    name = f"persys-{unique_id}"
    apply(stacks, unique_id, STACK, project_name=name, project_name_derived=True)

    stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert project_of(stacks, unique_id).startswith(f"{name}-")


def test_a_stack_keeps_its_project_name_until_it_is_deleted(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id, STACK)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    before, name = runs(stacks, unique_id), project_of(stacks, unique_id)

    apply(stacks, unique_id, STACK, revision="r2", project_name="other")
    status = stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert runs(stacks, unique_id) == before
    assert status.metadata["compose.project"] == name
    assert f"the stack uses the project {name}" in status.metadata["note"]
    stacks.kill()
    stacks.start()
    assert stacks.status(unique_id).metadata["compose.project"] == name
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)
    apply(stacks, unique_id, STACK, revision="r2", project_name=f"other-{unique_id}")
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    assert project_of(stacks, unique_id) == f"other-{unique_id}"


@pytest.mark.parametrize("labelled", [True, False], ids=["of-compose", "by-hand"])
@pytest.mark.parametrize("kind", ["volume", "network"])
def test_a_project_name_in_use_is_rejected(
    stacks: "Agent", unique_id: str, kind: str, labelled: bool
) -> None:
    project = f"shop-{unique_id}"
    name = f"{project}_{'data' if kind == 'volume' else 'default'}"
    labels = ["--label", f"{PROJECT_LABEL}={project}"] if labelled else []
    docker(kind, "create", *labels, name)
    try:
        apply(stacks, unique_id, STACK, project_name=project)
        status = stacks.wait_for(unique_id, FAILED, within=WITHIN)
    finally:
        docker(kind, "rm", name)

    assert status.metadata["reason_code"] == "NameTaken"
    assert f"project name '{project}' is in use on this node by {kind} {name}" in status.message
    assert stacks.containers(unique_id) == []
    apply(stacks, unique_id, STACK, project_name=project)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)


def test_a_project_name_of_another_workload_is_rejected(stacks: "Agent", unique_id: str) -> None:
    project = f"shop-{unique_id}"
    apply(stacks, unique_id, STACK, project_name=project)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    apply(stacks, f"{unique_id}-b", STACK, project_name=project)
    status = stacks.wait_for(f"{unique_id}-b", FAILED, within=WITHIN)

    assert f"of workload {unique_id}" in status.message
    assert stacks.status(unique_id).actual_state == RUNNING


def test_the_project_name_variable_is_ignored_with_a_note(stacks: "Agent", unique_id: str) -> None:
    apply(stacks, unique_id, STACK, env={"COMPOSE_PROJECT_NAME": "elsewhere"})

    status = stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert project_of(stacks, unique_id).startswith(f"persys-{unique_id}-")
    assert "COMPOSE_PROJECT_NAME is ignored" in status.metadata["note"]
