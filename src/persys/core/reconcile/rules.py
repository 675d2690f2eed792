"""Named rules: the type of the tables through which `decide` goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from persys.core.reconcile.situation import Decision, Placer, Policy, Situation


class Case(NamedTuple):
    """What a rule may use. `roll` in [0, 1) places a retry inside its jitter window: 0 is earliest.

    `as_stored` is the situation before a retry of another revision was dropped from it.
    """

    situation: Situation
    placer: Placer
    policy: Policy
    now: datetime
    roll: float
    as_stored: Situation


@dataclass(frozen=True, slots=True)
class Rule:
    """`apply` returns a decision, or None if the rule does not apply.

    `name` is stable: it is shown in logs, in events and by `persysctl explain`.
    """

    name: str
    apply: Callable[[Case], Decision | None]


def first_match(rules: Sequence[Rule], case: Case) -> Decision:
    """The decision of the first rule that applies, with the name of that rule.

    A rule with a table of its own returns a decision that already has a name.
    """
    for rule in rules:
        decision = rule.apply(case)
        if decision is not None:
            return decision if decision.rule else decision.by(rule.name)
    raise AssertionError("the last rule of a table always applies")
