"""The cost of explain over one placement, at 10,000 nodes.

A placement evaluates only a few nodes; explain evaluates all of them.

python -m bench.explain
"""

from collections.abc import Callable
from functools import partial
from random import Random
from time import process_time

from bench.verdict import Verdict, report
from persys.core.placement.explain import explain
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import choose
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, Operator, Resources, Rules

NODES = 10_000
LIMIT = 20  # the default number of nodes in an explanation
TRAITS = frozenset({"type:container"})
SMALL = Requirements(Resources(100, 64, 0), TRAITS)
LARGE = Requirements(Resources(6000, 1024, 1), TRAITS)
TOO_LARGE = Requirements(Resources(64000, 1024, 1), TRAITS)
RARE = Constraint("zone", Operator.EQUALS, ("z9",))
PICKY = Requirements(Resources(100, 64, 0), TRAITS, rules=Rules(constraints=(RARE,)))


def main() -> None:
    """A cluster in use: only the last nodes in the order have capacity for large workloads."""
    node_index = _cluster()
    placing = _seconds(lambda: _placed(SMALL, node_index, choose))
    cases = {"placed": SMALL, "placed last": LARGE, "constrained": PICKY, "waiting": TOO_LARGE}
    report(
        *(
            Verdict(
                f"explain: {name}, over one placement",
                _seconds(partial(explain, needs, node_index, limit=LIMIT)) / placing,
                at_most=20,
            )
            for name, needs in cases.items()
        )
    )


def _cluster() -> NodeIndex:
    random = Random(7)
    node_index = NodeIndex()
    for number in range(NODES):
        node_id = NodeId(f"node-{number:05d}")
        # Large nodes come last: they are the fullest, but have the most free capacity.
        cpu = 64000 if number % 100 == 0 else 8000
        zone = {"zone": f"z{number % 100}"}
        node_index.put_node(
            node_id, allocatable=Resources(cpu, 262144, 500), traits=TRAITS, labels=zone
        )
        used = 0.88 if cpu == 64000 else random.uniform(0.3, 0.8)
        resources = Resources(int(cpu * used), 1024, 1)
        node_index.hold(WorkloadId(f"w{number}"), node_id, resources, frozenset())
    return node_index


def _placed(
    needs: Requirements,
    node_index: NodeIndex,
    choosing: Callable[[Requirements, NodeIndex], NodeSlot | None],
) -> None:
    """One placement: choose, reserve and release."""
    found = choosing(needs, node_index)
    assert found is not None
    node_index.hold(WorkloadId("new"), found.node_id, needs.resources, needs.host_ports)
    node_index.give_back(WorkloadId("new"), found.node_id)


def _seconds(run: Callable[[], object]) -> float:
    """The best of ten runs, per call."""
    return min(_run(run) for _ in range(10))


def _run(run: Callable[[], object]) -> float:
    started_at = process_time()
    for _ in range(20):
        run()
    return (process_time() - started_at) / 20


if __name__ == "__main__":
    main()
