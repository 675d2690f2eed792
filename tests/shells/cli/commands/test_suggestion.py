"""persysctl suggestion, and the spec of an orphan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1 import control_pb2
from shells.cli.gateway import gateway

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

SUGGESTION = """
suggestion_id: s1
target_workload: web
action_type: AUTOMATION_ACTION_RETRY_WORKLOAD
replica_delta: 2
suggested_at: 2026-01-01T00:00:00Z
"""


def test_a_suggestion_is_submitted_unchanged(cluster: Cluster, ctl: Run) -> None:
    cluster.decision_response = control_pb2.SubmitAutomationSuggestionResponse(
        accepted=True, decision="accepted", applied_action="retried"
    )

    result = ctl("suggestion", "submit", "-f", "-", stdin=SUGGESTION)

    assert result.code == 0, result.err
    assert "retried" in result.out
    (received,) = cluster.suggestions
    assert (received.target_workload, received.replica_delta) == ("web", 2)
    assert received.action_type == control_pb2.AUTOMATION_ACTION_RETRY_WORKLOAD
    assert received.suggested_at.seconds == 1_767_225_600


def test_a_rejection_is_reported_directly_and_through_a_gateway(cluster: Cluster, run: Run) -> None:
    cluster.decision_response = control_pb2.SubmitAutomationSuggestionResponse(
        decision="rejected", reason="no policy allows it"
    )
    words = ("suggestion", "submit", "-f", "-")

    result = run(*words, stdin=SUGGESTION, PERSYS_GRPC_ENDPOINT=cluster.address)
    with gateway(scheduler_addr=(cluster.address,)) as url:
        completed = run(*words, stdin=SUGGESTION, PERSYS_API_ENDPOINT=url)

    assert result.code == 1
    assert "no policy allows it" in result.out
    assert (completed.code, completed.out) == (result.code, result.out)


@pytest.mark.parametrize("text", ["a: [", "- list", "nonsense: 1", "replica_delta: many"])
def test_an_invalid_suggestion_is_refused(text: str, ctl: Run) -> None:
    result = ctl("suggestion", "submit", "-f", "-", stdin=text)

    assert result.code == 2
    assert "standard input" in result.err


def a_decision(suggestion_id: str, decision: str) -> control_pb2.SuggestionView:
    suggestion = control_pb2.AutomationSuggestion(
        suggestion_id=suggestion_id,
        target_workload="web",
        action_type=control_pb2.AUTOMATION_ACTION_DELETE_WORKLOAD,
    )
    return control_pb2.SuggestionView(suggestion=suggestion, decision=decision)


def test_suggestions_are_listed_by_decision(cluster: Cluster, ctl: Run) -> None:
    cluster.decisions = [a_decision("s1", "pending"), a_decision("s2", "accepted")]

    result = ctl("suggestion", "list", "--decision", "pending")

    assert result.code == 0, result.err
    assert "s1" in result.out
    assert "delete_workload" in result.out
    assert "s2" not in result.out


@pytest.mark.parametrize(("verb", "expected"), [("approve", "approved"), ("reject", "rejected")])
def test_a_suggestion_is_decided_by_its_id(
    cluster: Cluster, ctl: Run, verb: str, expected: str
) -> None:
    cluster.decisions = [a_decision("s1", "pending")]

    assert expected in ctl("suggestion", verb, "s1").out
    unknown = ctl("suggestion", verb, "s9")
    assert unknown.code != 0
    assert "suggestion not found: s9" in unknown.err


def test_an_orphan_is_shown_with_its_spec_and_secrets(cluster: Cluster, ctl: Run) -> None:
    result = ctl("orphans", "get", "n1", "web")

    assert result.code == 0, result.err
    assert "db-password" in result.out
    assert "image: nginx" in result.out


def test_secrets_are_allowed_by_name(cluster: Cluster, ctl: Run) -> None:
    cluster.drifts = [control_pb2.DriftView(node_id="n1", workload_id="web")]
    cluster.recovery = control_pb2.RecoveryAnswer(accepted=True, nodes=1, workloads=2)

    assert ctl("orphans", "adopt", "n1", "web", "--allow-secrets", "a,b").code == 0
    assert cluster.allowed_secrets == ["a", "b"]
    preview = ctl("recovery", "rebuild-from-agents", "--dry-run", "--allow-secrets", "c")
    assert "would restore 1 nodes and 2 workloads" in preview.out
    (request,) = cluster.rebuilds
    assert (request.dry_run, list(request.allow_secrets)) == (True, ["c"])
