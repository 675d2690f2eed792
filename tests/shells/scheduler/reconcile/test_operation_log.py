"""Each operation is logged when it is sent and when it ends, with the fields to correlate the lines."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from shells.scheduler.harness import Cluster, eventually

FACTS = {
    "workload_id",
    "node_id",
    "revision",
    "epoch",
    "desired",
    "requested_at",
    "task_id",
    "text",
}
HASTY = {
    "agent_apply_timeout": timedelta(seconds=0.3),
    "agent_delete_timeout": timedelta(seconds=0.3),
}


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    capture = LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[capture])
    yield capture.entries
    structlog.configure(processors=before)


def logged_operations(lines: list[Any], name: str) -> list[dict[str, Any]]:
    return [dict(line) for line in lines if line.get("event") == name]


async def is_reported(lines: list[Any], name: str) -> bool:
    return bool(logged_operations(lines, name))


async def test_a_start_is_logged_when_it_is_sent_and_when_it_ends(
    lines: list[Any], cluster: Cluster
) -> None:
    await cluster.join()

    applied = await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    (sent,) = logged_operations(lines, "workload.sent")
    (settled,) = logged_operations(lines, "workload.settled")
    for line in (sent, settled):
        assert line.keys() >= FACTS
        assert (line["workload_id"], line["node_id"], line["epoch"]) == ("web", "n1", 1)
        assert (line["revision"], line["desired"]) == (applied.revision_id, "running")
        assert line["task_id"] == "apply-web-1"
    assert settled["requested_at"] == sent["requested_at"] != ""
    assert settled["state"] == "Running"


async def test_a_failure_is_logged_with_its_text(lines: list[Any], cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("INVALID_IMAGE", "no such image")

    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")

    (failed,) = logged_operations(lines, "workload.failed")
    assert failed.keys() >= FACTS
    assert (failed["state"], failed["task_id"]) == ("Failed", "apply-web-1")
    assert "no such image" in failed["text"]


async def test_a_removal_is_logged_from_start_to_end(lines: list[Any], cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    await cluster.control.delete("web")
    await cluster.control.until_gone("web")

    sent = logged_operations(lines, "workload.removal_sent")[0]
    (removed,) = logged_operations(lines, "workload.removed")
    for line in (sent, removed):
        assert line.keys() >= FACTS
        assert (line["workload_id"], line["node_id"], line["desired"]) == ("web", "n1", "deleted")
    assert removed["state"] == "deleted"


@pytest.mark.parametrize("cluster", [HASTY], indirect=True)
async def test_a_timeout_is_logged_as_failed(lines: list[Any], cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 60

    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")

    (failed,) = logged_operations(lines, "workload.failed")
    assert failed.keys() >= FACTS
    assert failed["text"].startswith("TimedOut: not running 0.3s")
    assert failed["rule"] == "order-overdue"


async def test_an_order_without_a_reply_is_logged_with_its_request_and_node(
    lines: list[Any], cluster: Cluster
) -> None:
    node = await cluster.join()
    await node.agent.stop()

    applied = await cluster.control.apply("web")
    await eventually(lambda: is_reported(lines, "agent.gave_no_answer"), lambda: "the line")

    line = logged_operations(lines, "agent.gave_no_answer")[0]
    assert (line["workload_id"], line["node_id"]) == ("web", "n1")
    assert (line["revision"], line["desired"]) == (applied.revision_id, "running")
    assert line["requested_at"]
    assert "UNAVAILABLE" in line["reason"]


async def test_each_decision_is_a_line_at_level_debug(lines: list[Any], cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    decided = logged_operations(lines, "workload.decided")
    assert all(line["log_level"] == "debug" for line in decided)
    first, last = decided[0], decided[-1]
    assert (first["workload_id"], first["node_id"], first["effects"]) == ("web", "n1", ["Apply"])
    assert (last["seen"], last["status"], last["effects"]) == ("running", "Running", [])


async def test_nothing_is_logged_twice_after_a_restart(lines: list[Any], cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    lines.clear()

    await cluster.stop()
    await cluster.start()
    await cluster.control.apply("db")
    await cluster.control.until("db", "Running")

    assert {line["workload_id"] for line in logged_operations(lines, "workload.settled")} == {"db"}
