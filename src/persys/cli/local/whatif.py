"""`persys sim --snapshot`: predicts the effect of losing a node or adding a workload."""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import align_columns
from persys.cli.specs.sources import read_sources
from persys.cli.specs.spec_files import parse
from persys.model.ids import NodeId
from persys.sim.whatif import WorkloadMove, add, lose
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest
from persys.wire.stored.snapshot import read

ROWS_MAX = 40


def answer(options: Namespace) -> int:
    try:
        contents = read([options.snapshot.read_bytes()]).records
    except OSError as err:
        raise UsageError(f"cannot read {options.snapshot}: {err.strerror}") from err
    if options.lose:
        _print_loss(options.lose, lose(contents, NodeId(options.lose)))
    elif options.add:
        specs = parse(list(read_sources([options.add], recursive=False)))
        specs.only_workloads()
        requests = _copies(specs.requests, options.count)
        moves, refused = add(contents, requests)
        _print_addition(len(requests), moves, refused)
    else:
        raise UsageError("--snapshot needs --lose NODE or --add SPEC")
    return ExitCode.OK


def _copies(specs: Sequence[ApplyWorkloadRequest], count: int) -> list[ApplyWorkloadRequest]:
    if count == 1:
        return list(specs)
    copies = []
    for number in range(1, count + 1):
        for spec in specs:
            copy = ApplyWorkloadRequest()
            copy.CopyFrom(spec)
            copy.workload_id = f"{spec.workload_id}-{number}"
            copies.append(copy)
    return copies


def _print_loss(node_id: str, moves: Sequence[WorkloadMove]) -> None:
    moved = [move for move in moves if move.before == node_id and move.after not in ("", node_id)]
    left = [move for move in moves if move.before == node_id and move.after in ("", node_id)]
    others = [move for move in moves if move.before != node_id]
    print(
        f"loss of {node_id}: {len(moved)} workloads move, {len(left)} stay or are pending, "
        f"{len(others)} others change"
    )
    _table(moves)


def _print_addition(count: int, moves: Sequence[WorkloadMove], refused: Sequence[str]) -> None:
    new = [move for move in moves if not move.before]
    placed = Counter(move.after for move in new if move.after)
    waiting = Counter(move.why for move in new if not move.after)
    print(
        f"{count} added: {placed.total()} placed, {waiting.total()} pending, {len(refused)} refused"
    )
    for node_id, number in sorted(placed.items()):
        print(f"  {number} on {node_id}")
    for why, number in waiting.most_common():
        print(f"  {number} pending: {why}")
    for why in refused[:ROWS_MAX]:
        print(f"  refused: {why}")
    moved = [move for move in moves if move.before]
    if moved:
        print("other workloads that change:")
        _table(moved)


def _table(moves: Sequence[WorkloadMove]) -> None:
    if not moves:
        return
    rows = [[move.workload_id, move.before or "-", move.after or "-", move.why] for move in moves]
    print(align_columns([["WORKLOAD", "FROM", "TO", "REASON"], *rows[:ROWS_MAX]]))
    if len(rows) > ROWS_MAX:
        print(f"and {len(rows) - ROWS_MAX} more")
