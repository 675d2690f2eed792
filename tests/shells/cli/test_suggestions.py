"""What an automation proposes, from a file; policy decides, and a rejection is told as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1 import control_pb2
from shells.cli.front import gateway

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

SUGGESTION = """
suggestion_id: s1
target_workload: web
action_type: AUTOMATION_ACTION_RETRY_WORKLOAD
replica_delta: 2
suggested_at: 2026-01-01T00:00:00Z
"""


def test_it_is_submitted_as_it_stands(cluster: Cluster, ctl: Run) -> None:
    cluster.ruling = control_pb2.SubmitAutomationSuggestionResponse(
        accepted=True, decision="accepted", applied_action="retried"
    )

    ended = ctl("suggestion", "submit", "-f", "-", stdin=SUGGESTION)

    assert ended.code == 0, ended.err
    assert "retried" in ended.out
    (heard,) = cluster.suggestions
    assert (heard.target_workload, heard.replica_delta) == ("web", 2)
    assert heard.action_type == control_pb2.AUTOMATION_ACTION_RETRY_WORKLOAD
    assert heard.suggested_at.seconds == 1_767_225_600


def test_a_rejection_is_told_straight_and_through_a_gateway(cluster: Cluster, run: Run) -> None:
    cluster.ruling = control_pb2.SubmitAutomationSuggestionResponse(
        decision="rejected", reason="no policy allows it"
    )
    words = ("suggestion", "submit", "-f", "-")

    straight = run(*words, stdin=SUGGESTION, PERSYS_GRPC_ENDPOINT=cluster.address)
    with gateway(scheduler_addr=(cluster.address,)) as url:
        through = run(*words, stdin=SUGGESTION, PERSYS_API_ENDPOINT=url)

    assert straight.code == 1
    assert "no policy allows it" in straight.out
    assert (through.code, through.out) == (straight.code, straight.out)


@pytest.mark.parametrize("text", ["a: [", "- list", "nonsense: 1", "replica_delta: many"])
def test_what_is_no_suggestion_is_said(text: str, ctl: Run) -> None:
    ended = ctl("suggestion", "submit", "-f", "-", stdin=text)

    assert ended.code == 2
    assert "standard input" in ended.err
