"""Start of a scheduler with 100,000 workloads and 5,000 nodes: the time until it serves, and its memory.

    python -m bench.restart

The baseline for the time is reading the same store in an otherwise empty process. The baseline for the memory
is the stored bytes of the records of one workload or one node.
"""

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

from bench.processes import scheduler
from bench.stored import node_units, units, write
from bench.verdict import Verdict, report
from persys.infra.clock import SystemClock
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore

NODES = 5_000
WORKLOADS = 100_000
PAGE_BYTES = 4096


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        empty = _serving(root / "empty.db")[1]
        nodes = node_units(NODES)
        asyncio.run(write(root / "nodes.db", nodes))
        with_nodes = _serving(root / "nodes.db")[1]
        workloads = units(WORKLOADS, nodes=NODES)
        asyncio.run(write(root / "nodes.db", workloads))
        bare = asyncio.run(_read(root / "nodes.db"))
        seconds, full = _serving(root / "nodes.db")
    report(
        Verdict(
            "restart: 100,000 workloads, serving over a bare read of the store",
            seconds / bare,
            at_most=5,
        ),
        Verdict(
            "restart: memory per workload over its stored bytes",
            (full - with_nodes) / sum(map(_size, workloads)),
            at_most=1.5,
        ),
        Verdict(
            "restart: memory per node over its stored bytes",
            (with_nodes - empty) / sum(map(_size, nodes)),
        ),
    )


def _serving(path: Path) -> tuple[float, int]:
    """Seconds from the start to an open port, and the memory then, in bytes."""
    started_at = perf_counter()
    with scheduler(f"sqlite:{path}", SCHEDULER_NODE_LEASE="10m") as (_, _, started):
        seconds = perf_counter() - started_at
        pages = int(Path(f"/proc/{started.pid}/statm").read_text().split()[1])
    return seconds, pages * PAGE_BYTES


async def _read(path: Path) -> float:
    started_at = perf_counter()
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    await store.read("/")
    await store.close()
    return perf_counter() - started_at


def _size(unit: Unit) -> int:
    return sum(len(key) + len(value) for key, value in unit.puts.items())


if __name__ == "__main__":
    main()
