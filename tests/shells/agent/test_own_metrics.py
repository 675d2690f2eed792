"""Metrics and debug logs of the agent itself: RPCs, journal, reconcile passes."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.in_memory import Node, RunningAgent, a_context, a_running_agent


def sample(running: RunningAgent, name: str, **labels: str) -> float:
    registry = running.agent.registry
    return registry.get_sample_value(f"persys_agent_{name}", labels) or 0.0


async def test_calls_are_counted_and_timed_by_method_and_code(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("web")
        unknown = agent_pb2.GetWorkloadStatusRequest(id="nobody")
        with pytest.raises(Exception, match="not found"):
            await running.api.GetWorkloadStatus(unknown, a_context())

        for method, code in (("ApplyWorkload", "OK"), ("GetWorkloadStatus", "NOT_FOUND")):
            labels = {"method": method, "code": code}
            assert sample(running, "grpc_requests_total", **labels) == 1
            assert sample(running, "grpc_request_seconds_count", **labels) == 1


async def test_a_method_is_shown_before_its_first_call(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        labels = {"method": "DeleteWorkload", "code": "OK"}
        name = "persys_agent_grpc_requests_total"
        assert running.agent.registry.get_sample_value(name, labels) == 0


async def test_transactions_of_the_journal_are_counted_and_timed(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        before = sample(running, "journal_writes_total", outcome="stored")

        await running.apply("web")

        assert sample(running, "journal_writes_total", outcome="stored") > before
        assert sample(running, "journal_write_seconds_count") > 0
        assert sample(running, "journal_writes_total", outcome="failed") == 0


async def test_a_pass_over_all_workloads_is_timed_when_each_was_inspected(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("web")

        await running.until(
            lambda: sample(running, "reconcile_cycle_seconds_count") >= 2, "two passes"
        )


async def test_at_level_debug_each_decision_and_step_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with a_running_agent(Node(tmp_path)) as running:
            await running.apply("web")
            await running.until(
                lambda: any(line.get("settled") == "running" for line in logs), "it runs"
            )

    lines = [line for line in logs if line["log_level"] == "debug"]
    decided = [line for line in lines if line["event"] == "workload.decided"]
    ended = [line for line in lines if line["event"] == "step.ended"]
    assert [line["step"] for line in decided if "step" in line][-2:] == ["create", "start"]
    assert {"create", "start"} <= {line["step"] for line in ended}
    assert all(line["workload_id"] == "web" for line in decided)
    assert {"revision", "epoch", "desired", "there", "there_revision"} <= decided[0].keys()
