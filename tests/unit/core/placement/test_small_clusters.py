"""A small cluster is placed, queued and explained without numpy, whose import takes 14 MB."""

import subprocess
import sys

CODE = """
import sys
import persys.scheduler.app
from persys.core.placement.explain import explain
from persys.core.placement.index.node_index import SCANNED_MOST, NodeIndex
from persys.core.placement.pending_queue import RequirementGroups
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import place
from persys.model.placement import Resources

index, groups = NodeIndex(), RequirementGroups()
for number in range(int(sys.argv[1])):
    index.put_node(f"n{number}", allocatable=Resources(100, 100, 100), traits=frozenset())
for cpu in (10, 1000):
    needs = Requirements(Resources(cpu, 1, 1), frozenset())
    place(needs, index)
    explain(needs, index, limit=5)
    groups.add(f"w{cpu}", needs)
list(groups.that_may_fit(Resources(20, 20, 20)))
print(SCANNED_MOST, "numpy" in sys.modules)
"""


def with_nodes(count: int) -> tuple[int, bool]:
    arguments = [sys.executable, "-c", CODE, str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    most, imported = done.stdout.split()
    return int(most), imported == "True"


def test_a_small_cluster_does_not_import_numpy() -> None:
    assert with_nodes(16) == (16, False)


def test_a_larger_cluster_does() -> None:
    assert with_nodes(17) == (16, True)
