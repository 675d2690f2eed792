"""A measured ratio and its bound."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    ratio: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )

    def __str__(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_least is not None else ""
        bound = f"at most {self.at_most:g}" if self.at_most is not None else bound
        verdict = ("holds" if self.holds else "MISSED") if bound else ""
        return f"{self.name:<72} {self.ratio:8.3f}  {bound:<14} {verdict}".rstrip()


def report(*verdicts: Verdict) -> None:
    """Print all results; exit with an error if a bound is missed."""
    for verdict in verdicts:
        print(verdict, flush=True)
    if not all(verdict.holds for verdict in verdicts):
        sys.exit(1)
