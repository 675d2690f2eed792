"""How many examples a property gets, relative to the Hypothesis profile (see conftest.py)."""

from hypothesis import settings


def times(factor: float) -> int:
    """`factor` times as many examples as other properties."""
    profile = settings.default
    assert profile is not None
    return max(1, round(factor * profile.max_examples))
