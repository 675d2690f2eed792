"""`persys sim`: runs the scheduler and its agents under seeded faults, in virtual time."""

import argparse
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from persys.sim.engine.trace import Line
    from persys.sim.run import Outcome
    from persys.sim.scenario.plan import Shape


SEEDS_DEFAULT = "1..20"
TRACE_SHOWN = 40
# Sets of strings are ordered by their hashes: only with a fixed hash seed is a run reproducible.
HASH_SEED = "0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="run one seed")
    parser.add_argument(
        "--seeds", type=_seed_range, default=_seed_range(SEEDS_DEFAULT), metavar="A..B",
        help=f"run the seeds from A to B (default: {SEEDS_DEFAULT})",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="duration of the fault phase, in virtual minutes"
    )
    parser.add_argument("--nodes", type=_count, metavar="N", help="number of nodes")
    parser.add_argument("--workloads", type=_count, metavar="M", help="number of workloads")
    parser.add_argument(
        "--schedulers", type=_count, default=0, metavar="N",
        help="number of schedulers on one store (default: chosen by the seed)",
    )  # fmt: skip
    parser.add_argument(
        "--streams", type=_share, default=-1.0, metavar="SHARE",
        help="share of agents on control streams, 0 to 1 (default: chosen by the seed)",
    )  # fmt: skip
    parser.add_argument(
        "--remote-nodes", type=_count, default=0, metavar="N",
        help="add a remote cluster with N nodes, as a federated node (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--node-pool", type=_count, default=0, metavar="N",
        help="add a node pool with at most N machines, not with --remote-nodes (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--sets", type=_count, default=0, metavar="N",
        help="add N sets, not with --remote-nodes or --node-pool (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=_count, default=0, metavar="N",
        help="add N jobs, not with --remote-nodes or --node-pool (default: none)",
    )  # fmt: skip
    parser.add_argument("--trace", action="store_true", help="print the full trace")
    parser.add_argument(
        "--first", action="store_true",
        help="stop at the first seed that violates an invariant, without shrinking its plan",
    )  # fmt: skip
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a saved plan")
    parser.add_argument(
        "--plan-out", type=Path, metavar="FILE", help="where to save the plan of a failure"
    )
    parser.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="start from the cluster in this snapshot"
    )
    parser.add_argument(
        "--lose", metavar="NODE", help="with --snapshot: show the effect of losing this node"
    )
    parser.add_argument(
        "--add", metavar="SPEC", help="with --snapshot: show the effect of adding this workload"
    )
    parser.add_argument(
        "--count", type=_count, default=1, metavar="N", help="with --add: number of copies"
    )


def simulate(options: Namespace) -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        command = [sys.executable, "-m", "persys.cli.persys", *sys.argv[1:]]
        sys.stdout.flush()
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": HASH_SEED})  # noqa: S606
    if options.snapshot is not None:
        from persys.cli.local.whatif import answer

        return answer(options)
    return _replay(options) if options.replay is not None else _run_seeds(options)


def _replay(options: Namespace) -> int:
    from persys.sim.run import run
    from persys.sim.scenario.plan import plan_from

    try:
        data = options.replay.read_bytes()
    except OSError as err:
        raise UsageError(f"cannot read {options.replay}: {err.strerror}") from err
    outcome = run(plan_from(data))
    if options.trace:
        _print_trace(outcome.lines)
    print(f"seed {outcome.plan.seed}: {outcome.violation or 'no invariant violated'}")
    print(f"fingerprint {outcome.fingerprint}")
    return ExitCode.FAILED if outcome.violation else ExitCode.OK


def _run_seeds(options: Namespace) -> int:
    from persys.sim.run import run
    from persys.sim.scenario.generate import draw

    _check_options(options)
    seeds = [options.seed] if options.seed is not None else options.seeds
    clock = SystemClock()
    began, virtual, failures = clock.monotonic(), 0.0, 0
    for seed in seeds:
        outcome = run(draw(seed, _shape(seed, options)))
        virtual += outcome.virtual_seconds
        if options.trace:
            _print_trace(outcome.lines)
        if options.trace or len(seeds) == 1:
            print(f"seed {seed}: fingerprint {outcome.fingerprint}, {outcome.steps} lines of trace")
        if outcome.violation is not None:
            failures += 1
            if options.first:
                print(f"seed {seed}: {outcome.violation}")
                break
            _explain(outcome, options)
    took = max(clock.monotonic() - began, 0.001)
    print(
        f"{len(seeds)} seeds, {failures} violated an invariant; "
        f"{virtual / 60:.0f} virtual minutes in {took:.0f} s ({virtual / took:.0f} times as fast)"
    )
    return ExitCode.FAILED if failures else ExitCode.OK


def _check_options(options: Namespace) -> None:
    if options.node_pool and options.remote_nodes:
        raise UsageError("--node-pool and --remote-nodes: expected one of them")
    if (options.sets or options.jobs) and (options.node_pool or options.remote_nodes):
        raise UsageError("--sets and --jobs: expected neither --node-pool nor --remote-nodes")


def _shape(seed: int, options: Namespace) -> "Shape":
    """The size from the command line, or the one chosen by the seed."""
    from msgspec.structs import replace

    from persys.sim.scenario.generate import (
        FEDERATED_SHAPE,
        POOL_SHAPE,
        SET_SHAPE,
        shape_for,
    )
    from persys.sim.scenario.plan import Shape

    sized = options.nodes or options.workloads or options.minutes
    shape = Shape() if sized else shape_for(seed)
    if options.remote_nodes:
        shape = replace(FEDERATED_SHAPE, remote_nodes=options.remote_nodes)
    if options.node_pool:
        shape = replace(POOL_SHAPE, pool_machines=options.node_pool)
    if options.sets or options.jobs:
        shape = replace(SET_SHAPE, sets=options.sets, jobs=options.jobs)
    return replace(
        shape,
        nodes=options.nodes or shape.nodes,
        workloads=options.workloads or shape.workloads,
        minutes=options.minutes or shape.minutes,
        schedulers=options.schedulers,
        streams=options.streams,
    )


def _explain(outcome: "Outcome", options: Namespace) -> None:
    from persys.sim.run import shrink

    print(f"seed {outcome.plan.seed}: {outcome.violation}")
    smallest = shrink(outcome)
    path = options.plan_out or Path(f"sim-{outcome.plan.seed}.json")
    path.write_bytes(smallest.plan.to_json())
    print(f"the smallest failing plan has {len(smallest.plan.happenings)} steps:")
    for happening in smallest.plan.happenings:
        print(f"  {happening}")
    print(f"its violation: {smallest.violation}")
    _print_trace(smallest.lines[-TRACE_SHOWN:])
    print(f"replay it with: persys sim --replay {path}")


def _print_trace(lines: "tuple[Line, ...]") -> None:
    for line in lines:
        print(line)


def _seed_range(text: str) -> range:
    first, dots, last = text.partition("..")
    if not (first.isdecimal() and (last.isdecimal() or not dots)):
        raise argparse.ArgumentTypeError(
            f"invalid range of seeds {text!r}: expected A..B, for example 1..20"
        )
    return range(int(first), int(last or first) + 1)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"invalid share {text!r}: expected 0 to 1")
    return share


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected 1 or more")
    return int(text)
