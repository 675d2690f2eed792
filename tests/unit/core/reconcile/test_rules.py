"""The tables of named rules."""

from dataclasses import fields
from typing import Any, cast

from persys.core.reconcile.converge import CONVERGE_RULES
from persys.core.reconcile.decide import DELETE_RULES, RULES
from persys.core.reconcile.situation import Decision

# Names are shown in logs, events and `persysctl explain`: a change here is visible to users.
NAMES = [
    "record-outdated",
    "return-failed",
    "unassigned",
    "node-rejected",
    "node-lost",
    "node-draining",
    "order-not-accepted",
    "return-started",
    "stay",
    "run-ended",
    "node-unreachable",
    "run-interrupted",
    "converged",
    "waits-for-old-copy",
    "failure-given-up",
    "retry-waiting",
    "retry-due",
    "failure",
    "unchanged",
    "retry-not-due",
    "runtime-unreadable",
    "agent-repairs",
    "order-lost",
    "order-overdue",
    "order-pending",
    "record-outdated",
    "delete-unassigned",
    "delete-confirmed",
    "delete-node-lost",
    "delete-overdue",
    "delete-order-lost",
    "delete-pending",
]


def test_the_names_and_the_order_of_the_rules_are_stable() -> None:
    assert [rule.name for rule in (*RULES, *CONVERGE_RULES, *DELETE_RULES)] == NAMES


def test_a_name_is_used_once_in_a_table() -> None:
    for rules in ((*RULES, *CONVERGE_RULES), DELETE_RULES):
        names = [rule.name for rule in rules]
        assert len(set(names)) == len(names)


def test_a_decision_by_a_rule_keeps_all_other_fields() -> None:
    values = {field.name: object() for field in fields(Decision)}
    decision = Decision(**cast("dict[str, Any]", values)).by("converged")

    assert {name: getattr(decision, name) for name in values} == {**values, "rule": "converged"}
