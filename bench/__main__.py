"""Runs all benchmarks in sequence: `make bench`. Fails if a bound is missed."""

import subprocess
import sys

BENCHMARKS = (
    "placement",
    "growth",
    "explain",
    "apply_rate",
    "sets",
    "startup",
    "memory",
    "containers",
    "federation",
    "machines",
    "logs",
    "idle",
    "agent_idle",
    "ha",
    "heartbeats",
    "heartbeat_cost",
    "dashboard",
    "gateway",
)


def main() -> int:
    missed = [
        name
        for name in BENCHMARKS
        if subprocess.run([sys.executable, "-m", f"bench.{name}"]).returncode
    ]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
