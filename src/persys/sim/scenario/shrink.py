"""Shrinks a failing plan: removes events that are not needed to violate the same promise."""

from collections.abc import Callable

from msgspec.structs import replace

from persys.sim.run import Outcome, run
from persys.sim.scenario.plan import Plan, PlannedEvent

ATTEMPTS_MAX = 250


def shrink(
    failed: Outcome, *, attempts_max: int = ATTEMPTS_MAX, run: Callable[[Plan], Outcome] = run
) -> Outcome:
    """The outcome of the shortest plan found. `failed` has a violation."""
    assert failed.violation is not None
    promise, broken_at = failed.violation.promise, failed.violation.at
    best = failed
    attempts = 0

    def breaks(happenings: tuple[PlannedEvent, ...]) -> bool:
        nonlocal best, attempts
        attempts += 1
        outcome = run(replace(best.plan, happenings=happenings))
        if outcome.violation is None or outcome.violation.promise != promise:
            return False
        best = outcome
        return True

    # Events after the violation cannot have caused it.
    breaks(tuple(each for each in failed.plan.happenings if each.at <= broken_at))
    size = max(1, len(best.plan.happenings) // 2)
    while attempts < attempts_max:
        before = len(best.plan.happenings)
        begin = 0
        while begin < len(best.plan.happenings) and attempts < attempts_max:
            remaining = best.plan.happenings
            if not breaks(remaining[:begin] + remaining[begin + size :]):
                begin += size
        if size == 1 and len(best.plan.happenings) == before:
            break
        size = max(1, size // 2)
    return best
