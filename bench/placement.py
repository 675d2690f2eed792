"""Placement decisions per second, over a full scan in Python; growth with nodes and with rules.

python -m bench.placement
"""

import gc
from collections.abc import Callable, Iterator
from random import Random
from time import process_time

from bench.verdict import Verdict, report
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.pending_queue import PendingEntry, PendingQueue
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import NO_RULES, Constraint, Operator, Resources, Rules, Strategy

TRAITS = frozenset({"type:container"})
NVME = Constraint("disk", Operator.EQUALS, ("nvme",))

ROUNDS = 5
TURN = 100  # decisions

Choose = Callable[[Requirements, NodeIndex], object]

# Groups of ten, like replicas, and one group of all.
RULES: tuple[tuple[str, Callable[[int], Rules], float], ...] = (
    ("spread over zones", lambda n: Rules(group=f"g{n // 10}", spread_over=("zone",)), 2),
    ("spread over racks", lambda n: Rules(group=f"g{n // 10}", spread_over=("rack",)), 2),
    # Every one of its placements changes the order of a whole zone, so it may cost a little more.
    ("a group larger than a zone", lambda _: Rules(group="all", spread_over=("zone",)), 3),
    ("anti-affinity", lambda n: Rules(group=f"g{n // 10}", apart=True), 2),
    ("a large group with anti-affinity", lambda _: Rules(group="all", apart=True), 2),
    ("a constraint that one node in ten meets", lambda _: Rules(constraints=(NVME,)), 2),
    ("binpack", lambda _: Rules(strategy=Strategy.BINPACK), 2),
)


def main() -> None:
    """Both sides place and reserve the same stream of needs on equal clusters."""
    gc.disable()  # like in the scheduler, which collects in idle times
    fast = _seconds(5_000, 4_000, place)
    scan = _seconds(5_000, 60, _scan)
    small = _seconds(1_000, 4_000, place)
    large = _seconds(10_000, 4_000, place)
    report(
        Verdict("placement: decisions over a full scan, 5,000 nodes", scan / fast, at_least=10),
        Verdict("placement: cost at 10,000 nodes over 1,000", large / small, at_most=3),
        *(
            Verdict(f"placement: {name} over plain, 5,000 nodes", _over_plain(rules), at_most=most)
            for name, rules, most in RULES
        ),
        Verdict(
            "pending: capacity offered to 10,000 workloads that need more, over one placement",
            _offer_seconds(10_000) / fast,
            at_most=20,
        ),
    )


def _over_plain(rules: Callable[[int], Rules]) -> float:
    """Short alternating rounds, the best of several: other load on the machine affects both."""
    rounds = [
        list(zip(_run(5_000, 4_000, place, None), _run(5_000, 4_000, place, rules), strict=True))
        for _ in range(ROUNDS)
    ]
    best = [[min(times) for times in zip(*turn, strict=True)] for turn in zip(*rounds, strict=True)]
    plain, ruled = map(sum, zip(*best, strict=True))
    return ruled / plain


def _offer_seconds(waiting_count: int) -> float:
    """All needs differ, so that each has its own queue."""
    node_index = NodeIndex()
    node_id = NodeId("node")
    node_index.put_node(node_id, allocatable=Resources(1000, 1024, 10), traits=TRAITS)
    waiting = PendingQueue()
    for number in range(waiting_count):
        needs = Requirements(Resources(1001 + number, 64), TRAITS)
        waiting.add(WorkloadId(f"w{number}"), PendingEntry(needs))
    started_at = process_time()
    for _ in range(200):
        assert waiting.candidates_for(node_index.slots[node_id]) == []
    return (process_time() - started_at) / 200


def _seconds(node_count: int, decisions: int, choose: Choose) -> float:
    """The best of three runs, per decision."""
    return min(sum(_run(node_count, decisions, choose, None)) for _ in range(3)) / decisions


def _run(
    node_count: int, decisions: int, choose: Choose, rules: Callable[[int], Rules] | None
) -> Iterator[float]:
    """The seconds of each round."""
    random = Random(7)
    node_index = NodeIndex()
    for number in range(node_count):
        node_index.put_node(
            NodeId(f"node-{number:05d}"),
            allocatable=Resources(random.choice((4000, 8000, 16000)), 32768, 500),
            traits=TRAITS,
            # One zone is small, so that it is soon the fullest and rarely among the first.
            labels={
                "zone": "c" if number % 20 == 0 else random.choice("ab"),
                "rack": f"r{number % 200}",
                "disk": "nvme" if number % 10 == 0 else "hdd",
            },
        )
    needs = [
        Requirements(
            Resources(random.randrange(50, 500), random.randrange(32, 512), 1),
            TRAITS,
            rules=rules(number) if rules else NO_RULES,
        )
        for number in range(decisions)
    ]
    for first in range(0, decisions, TURN):
        started_at = process_time()
        for number, need in enumerate(needs[first : first + TURN], first):
            chosen = choose(need, node_index)
            assert isinstance(chosen, Placed)
            node_index.hold(
                WorkloadId(f"w{number}"),
                chosen.node_id,
                need.resources,
                need.host_ports,
                group=need.rules.group,
                apart=need.rules.apart,
            )
        yield process_time() - started_at


def _scan(needs: Requirements, node_index: NodeIndex) -> Placed:
    best: NodeSlot | None = None
    for slot in node_index.slots.values():
        if reject(slot, needs) is None and (best is None or slot.rank < best.rank):
            best = slot
    assert best is not None
    return Placed(best.node_id, "")


if __name__ == "__main__":
    main()
