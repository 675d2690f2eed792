"""Placement decisions per second, over a plain full scan in Python; and how the cost grows with nodes.

python -m bench.placement
"""

from collections.abc import Callable
from random import Random
from time import perf_counter

from bench.verdict import Verdict, report
from persys.core.placement.columns import Columns
from persys.core.placement.filters import reject
from persys.core.placement.needs import Needs
from persys.core.placement.row import Row
from persys.core.placement.select import Placed, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources

TRAITS = frozenset({"type:container"})


def main() -> None:
    """Both sides place and reserve the same stream of needs on equal clusters."""
    fast = _seconds(5_000, 2_000, place)
    scan = _seconds(5_000, 60, _scan)
    small = _seconds(1_000, 4_000, place)
    large = _seconds(10_000, 4_000, place)
    report(
        Verdict("placement: decisions over a full scan, 5,000 nodes", scan / fast, at_least=10),
        Verdict("placement: cost at 10,000 nodes over 1,000", large / small, at_most=3),
    )


def _seconds(node_count: int, decisions: int, choose: Callable[[Needs, Columns], object]) -> float:
    """The best of three runs, per decision."""
    return min(_run(node_count, decisions, choose) for _ in range(3)) / decisions


def _run(node_count: int, decisions: int, choose: Callable[[Needs, Columns], object]) -> float:
    random = Random(7)
    columns = Columns()
    for number in range(node_count):
        columns.put_node(
            NodeId(f"node-{number:05d}"),
            allocatable=Resources(random.choice((4000, 8000, 16000)), 32768, 500),
            traits=TRAITS,
        )
    needs = [
        Needs(Resources(random.randrange(50, 500), random.randrange(32, 512), 1), TRAITS)
        for _ in range(decisions)
    ]
    began = perf_counter()
    for number, need in enumerate(needs):
        chosen = choose(need, columns)
        assert isinstance(chosen, Placed)
        columns.hold(WorkloadId(f"w{number}"), chosen.node_id, need.resources, need.host_ports)
    return perf_counter() - began


def _scan(needs: Needs, columns: Columns) -> Placed:
    best: Row | None = None
    for row in columns.rows.values():
        if reject(row, needs) is None and (best is None or row.rank < best.rank):
            best = row
    assert best is not None
    return Placed(best.node_id, "")


if __name__ == "__main__":
    main()
