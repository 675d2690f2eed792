"""What an explanation costs over one placement, at 10,000 nodes.

What is placed is held against an ordinary placement, which looks at a few nodes only. What waits was placed
nowhere: it is held against the search through all nodes that found this out.

python -m bench.explain
"""

from collections.abc import Callable
from functools import partial
from random import Random
from time import process_time

from bench.verdict import Verdict, report
from persys.core.placement.columns import Columns
from persys.core.placement.explain import explain
from persys.core.placement.needs import Needs
from persys.core.placement.row import Row
from persys.core.placement.search import search
from persys.core.placement.select import choose
from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources
from persys.model.rules import Constraint, Operator, Rules

NODES = 10_000
LIMIT = 20  # how many nodes an explanation tells about, if nobody says otherwise
TRAITS = frozenset({"type:container"})
SMALL = Needs(Resources(100, 64, 0), TRAITS)
LARGE = Needs(Resources(6000, 1024, 1), TRAITS)
TOO_LARGE = Needs(Resources(64000, 1024, 1), TRAITS)
RARE = Constraint("zone", Operator.EQUALS, ("z9",))
PICKY = Needs(Resources(100, 64, 0), TRAITS, rules=Rules(constraints=(RARE,)))


def main() -> None:
    """The cluster is in use: only the last nodes in the order have room for what is large."""
    columns = _cluster()
    placing = _seconds(lambda: _placed(SMALL, columns, choose))
    refusing = _seconds(lambda: search(TOO_LARGE, columns))

    def over(needs: Needs, floor: float) -> float:
        return _seconds(partial(explain, needs, columns, limit=LIMIT)) / floor

    report(
        Verdict("explain: placed, over one placement", over(SMALL, placing), at_most=20),
        Verdict("explain: placed last, over one placement", over(LARGE, placing), at_most=20),
        Verdict("explain: constrained, over one placement", over(PICKY, placing), at_most=20),
        Verdict("explain: waiting, over finding no node", over(TOO_LARGE, refusing), at_most=20),
    )


def _cluster() -> Columns:
    random = Random(7)
    columns = Columns()
    for number in range(NODES):
        node_id = NodeId(f"node-{number:05d}")
        # Large nodes stand last: they are the fullest, but what is left of them is more.
        cpu = 64000 if number % 100 == 0 else 8000
        zone = {"zone": f"z{number % 100}"}
        columns.put_node(
            node_id, allocatable=Resources(cpu, 262144, 500), traits=TRAITS, labels=zone
        )
        used = 0.88 if cpu == 64000 else random.uniform(0.3, 0.8)
        resources = Resources(int(cpu * used), 1024, 1)
        columns.hold(WorkloadId(f"w{number}"), node_id, resources, frozenset())
    return columns


def _placed(
    needs: Needs, columns: Columns, choosing: Callable[[Needs, Columns], Row | None]
) -> None:
    """One placement: choose, reserve and give back."""
    found = choosing(needs, columns)
    assert found is not None
    columns.hold(WorkloadId("new"), found.node_id, needs.resources, needs.host_ports)
    columns.give_back(WorkloadId("new"), found.node_id)


def _seconds(run: Callable[[], object]) -> float:
    """The best of ten runs, per call."""
    return min(_run(run) for _ in range(10))


def _run(run: Callable[[], object]) -> float:
    began = process_time()
    for _ in range(20):
        run()
    return (process_time() - began) / 20


if __name__ == "__main__":
    main()
