"""persysctl node, workload, cluster and agent: lists and details in every output format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import pytest
import yaml

from persys.cli.framework.output import code_text
from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

LONG_AGO_SECONDS = -62_135_596_800


@pytest.fixture
def two_nodes(cluster: Cluster) -> Cluster:
    cluster.add_node(
        "n1",
        total_cpu_cores=2,
        available_cpu_cores=1.5,
        total_memory_mb=2048,
        available_memory_mb=1024,
        workload_count=3,
        labels={"zone": "a"},
        grpc_endpoint="10.0.0.1:50051",
    )
    cluster.add_node("a-longer-name").status = "NotReady"
    return cluster


def test_nodes_are_listed_in_aligned_columns_with_ids_first(two_nodes: Cluster, ctl: Run) -> None:
    result = ctl("node", "list")

    header, first, second = result.out.splitlines()
    assert result.code == 0
    assert header.split()[:2] == ["ID", "STATUS"]
    assert first.split()[:4] == ["n1", "Ready", "1.5/2", "1024/2048"]
    assert header.index("STATUS") == first.index("Ready") == second.index("NotReady")


def test_wide_shows_more_columns(two_nodes: Cluster, ctl: Run) -> None:
    assert "10.0.0.1:50051" not in ctl("node", "list").out
    assert "10.0.0.1:50051" in ctl("node", "list", "-o", "wide").out


def test_json_of_a_list_is_an_array_with_snake_case_names(two_nodes: Cluster, ctl: Run) -> None:
    nodes = json.loads(ctl("node", "list", "-o", "json").out)

    assert [node["node_id"] for node in nodes] == ["n1", "a-longer-name"]
    assert nodes[0]["available_memory_mb"] == "1024"
    assert nodes[1]["workload_count"] == 0, "a script can rely on the key"


def test_yaml_has_the_same_content_as_json(two_nodes: Cluster, ctl: Run) -> None:
    as_yaml = yaml.safe_load(ctl("node", "list", "-o", "yaml").out)

    assert as_yaml == json.loads(ctl("node", "list", "-o", "json").out)


def test_name_prints_only_ids(two_nodes: Cluster, ctl: Run) -> None:
    assert ctl("node", "list", "-o", "name").out == "n1\na-longer-name\n"


def test_an_empty_list_is_a_note_as_table_and_empty_as_json(cluster: Cluster, ctl: Run) -> None:
    assert ctl("node", "list").out == "no nodes\n"
    assert ctl("node", "list", "-o", "json").out == "[]\n"
    assert ctl("workload", "list", "-o", "name").out == ""


def test_nodes_are_filtered_by_status(two_nodes: Cluster, ctl: Run) -> None:
    assert ctl("node", "list", "--status", "NotReady", "-o", "name").out == "a-longer-name\n"


def test_a_node_is_described(two_nodes: Cluster, ctl: Run) -> None:
    result = ctl("node", "get", "n1")

    assert result.code == 0
    assert "zone=a" in result.out


def test_a_node_that_does_not_exist_is_an_error(cluster: Cluster, ctl: Run) -> None:
    result = ctl("node", "get", "ghost")

    assert (result.code, result.err) == (1, "error: node not found: ghost\n")


def test_workloads_are_filtered_by_status_and_node(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("a", "Running", assigned_node_id="n1")
    cluster.add_workload("b", "Failed", assigned_node_id="n1")
    cluster.add_workload("c", "Failed", assigned_node_id="n2")

    result = ctl("workload", "list", "--status", "Failed", "--node", "n1", "-o", "name")

    assert result.out == "b\n"


@pytest.mark.parametrize(
    ("key", "address"),
    [("vm.ip_addresses", "192.168.122.7,fd00::7"), ("container.ports", "8080->80/tcp")],
)
def test_a_wide_list_shows_the_addresses_of_a_workload(
    cluster: Cluster, ctl: Run, key: str, address: str
) -> None:
    cluster.add_workload("up", "Running").metadata[key] = address
    cluster.add_workload("down", "Stopped").metadata[key] = address

    header, up, down = ctl("workload", "list", "-o", "wide").out.splitlines()

    assert "ADDRESS" in header
    assert address in up
    assert address not in down


def test_a_list_shows_why_a_workload_is_pending(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("big", "Pending").reason.message = "no node has 900 GB " + "x" * 80

    (line,) = ctl("workload", "list").out.splitlines()[1:]
    assert "no node has 900 GB" in line
    assert line.endswith("…")


@pytest.mark.parametrize(("status", "shown"), [("Running", False), ("Failed", True)])
def test_failed_attempts_are_shown_only_until_the_workload_runs(
    cluster: Cluster, ctl: Run, status: str, shown: bool
) -> None:
    cluster.add_workload("web", status, retry_attempts=1, retry_max_attempts=5)

    for words in (("list", "-o", "wide"), ("get", "web")):
        assert ("attempts failed" in ctl("workload", *words).out) is shown


def test_a_workload_shows_its_reason_retry_placement_and_metadata(
    cluster: Cluster, ctl: Run
) -> None:
    view = cluster.add_workload(
        "web", "Failed", assigned_node_id="n1", retry_attempts=2, retry_max_attempts=5
    )
    view.failure_reason = "IMAGE_PULL_FAILED"
    view.reason.code = "PullFailed"
    view.reason.message = "registry does not respond"
    view.placement = "most free memory"
    view.metadata["container.ports"] = "8080->80/tcp"
    view.spec.container.image = "nginx"

    out = ctl("workload", "get", "web").out

    for expected in (
        "PullFailed: registry does not respond",
        "ImagePullFailed",
        "2 of 5 attempts failed",
        "most free memory",
        "8080->80/tcp",
    ):
        assert expected in out
    assert "nginx" not in out
    assert "image: nginx" in ctl("workload", "get", "web", "-o", "wide").out


def test_the_summary_counts(two_nodes: Cluster, ctl: Run) -> None:
    assert "2 (2 ready" in ctl("cluster", "summary").out
    assert json.loads(ctl("cluster", "summary", "-o", "json").out)["failed_workloads"] == 0


def test_an_agent_shows_its_health(cluster: Cluster, run: Run) -> None:
    result = run("agent", "health", "--agent", cluster.address)

    assert result.code == 0
    assert "1.2.3" in result.out
    assert "Runtime container" in result.out


def test_an_unhealthy_agent_is_a_failure(cluster: Cluster, run: Run) -> None:
    cluster.health.healthy = False

    assert run("agent", "health", "--agent", cluster.address).code == 1


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("IMAGE_NOT_FOUND", "ImageNotFound"),
        ("revision_mismatch", "RevisionMismatch"),
        ("running", "Running"),
        ("OOMKilled", "OOMKilled"),
        ("NotReady", "NotReady"),
        ("", ""),
    ],
)
def test_all_codes_have_one_style(code: str, shown: str) -> None:
    assert code_text(code) == shown


def test_an_agent_lists_its_actions(cluster: Cluster, run: Run) -> None:
    cluster.actions = [
        agent_pb2.AgentAction(
            task_id="t1",
            workload_id="web",
            action_type="apply_workload",
            status="completed",
            created_at=1_700_000_000,
            started_at=1_700_000_000,
            ended_at=1_700_000_004,
        ),
        agent_pb2.AgentAction(
            task_id="t2", workload_id="db", status="pending", created_at=LONG_AGO_SECONDS
        ),
    ]

    _, first, second = run("agent", "actions", "--agent", cluster.address).out.splitlines()

    assert first.split()[:4] == ["t1", "web", "apply_workload", "Completed"]
    assert "4s" in first.split()
    assert second.split()[-3:] == ["-", "-", "-"]


def test_actions_are_limited_and_filtered(cluster: Cluster, run: Run) -> None:
    cluster.actions = [
        agent_pb2.AgentAction(task_id=f"t{number}", workload_id="web") for number in range(3)
    ]
    words = ("agent", "actions", "-o", "name", "--agent", cluster.address)

    assert run(*words, "--limit", "1").out == "t0\n"
    assert run(*words, "--workload", "db").out == ""


def test_an_agent_lists_its_workloads(cluster: Cluster, run: Run) -> None:
    cluster.statuses = [
        agent_pb2.WorkloadStatus(
            id="web",
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            actual_state=agent_pb2.ACTUAL_STATE_RUNNING,
        )
    ]

    _, line = run("agent", "list", "--agent", cluster.address).out.splitlines()

    assert line.split()[:4] == ["web", "container", "-", "Running"]


def test_an_agent_that_does_not_answer_is_unreachable(run: Run, unused_address: str) -> None:
    result = run("agent", "health", "--agent", unused_address)

    assert result.code == 4
    assert unused_address in result.err


def test_a_scheduler_that_does_not_answer_is_unreachable(run: Run, unused_address: str) -> None:
    result = run("node", "list", "--scheduler", unused_address)

    assert result.code == 4
    assert f"cannot reach the scheduler at {unused_address}" in result.err
    assert "persys up" in result.err


def test_a_refused_request_is_a_failure(cluster: Cluster, ctl: Run) -> None:
    cluster.abort = (grpc.StatusCode.PERMISSION_DENIED, "viewers are read-only")

    result = ctl("node", "list")

    assert (result.code, result.err) == (1, "error: viewers are read-only\n")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("node",),
        ("frobnicate", "list"),
        ("node", "list", "--colour"),
        ("node", "list", "-o", "xml"),
        ("workload", "get"),
        ("workload", "apply"),
        ("completion", "tcsh"),
        ("node", "list", "--timeout", "soon"),
        ("node", "list", "--timeout", "0"),
        ("node", "list", "--scheduler", "nowhere"),
        ("workload", "stop", "web", "--wait=later"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(words: tuple[str, ...], run: Run) -> None:
    result = run(*words)

    assert result.code == 2
    assert result.err


def test_global_options_are_accepted_before_and_after_the_command(
    two_nodes: Cluster, run: Run
) -> None:
    before = run("--scheduler", two_nodes.address, "-o", "name", "node", "list")
    after = run("node", "list", "--scheduler", two_nodes.address, "-o", "name")

    assert before == after
    assert before.code == 0


def test_help_and_version_need_no_cluster(run: Run) -> None:
    assert run("--help").code == 0
    assert run("version").out.startswith("persysctl ")


def test_every_command_names_a_function_that_exists() -> None:
    from importlib import import_module

    from persys.cli.framework.command_table import COMPLETE, GROUPS, SINGLES

    commands = [*SINGLES, COMPLETE, *(command for group in GROUPS for command in group.commands)]
    for command in commands:
        module, _, name = command.run.partition(":")
        assert isinstance(getattr(import_module(f"persys.cli.{module}"), name), Callable)  # type: ignore[arg-type]
