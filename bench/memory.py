"""Memory of idle processes, and memory and start of a scheduler with 1,000 nodes and 10,000 workloads.

    python -m bench.memory

The baseline is a bare Python process that has imported gRPC, measured in the same run. The baseline of the
start is the start of a scheduler on an empty store, in CPU time: other load on the machine affects it less.
"""

import asyncio
import subprocess
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from time import sleep

from bench.containers import agent
from bench.processes import (
    BIN,
    bare_resident_pages,
    cpu_seconds,
    free_port,
    process,
    resident_pages,
    scheduler,
)
from bench.stored import marker_unit, node_units, units, write
from bench.verdict import Verdict, report

NODES = 1_000
WORKLOADS = 10_000
SETTLED_SECONDS = 5.0
ROUNDS = 3
MB = 256  # pages
EMPTY_MAX = {"scheduler": 2.7, "agent": 3.3, "gateway": 2.8, "CA": 2.2}


def main() -> None:
    bare = bare_resident_pages()
    print(f"bare Python with gRPC: {bare / MB:.0f} MB")
    with tempfile.TemporaryDirectory() as directory:
        verdicts = [
            Verdict(
                f"memory: empty {name} ({pages / MB:.0f} MB), over bare Python with gRPC",
                pages / bare,
                at_most=EMPTY_MAX[name],
            )
            for name, pages in _empty(Path(directory)).items()
        ]
        verdicts += _full(Path(directory), bare)
    report(*verdicts)


def _empty(root: Path) -> dict[str, int]:
    """Resident pages of each process when nothing has been requested of it."""
    with ExitStack() as stack:
        grpc_port, _, leading = stack.enter_context(scheduler(f"sqlite:{root}/empty.db"))
        started = {
            "scheduler": leading,
            "agent": stack.enter_context(agent(root, grpc_port)),
            "gateway": stack.enter_context(_gateway(grpc_port)),
            "CA": stack.enter_context(_ca(root)),
        }
        sleep(SETTLED_SECONDS)
        return {name: resident_pages(one.pid) for name, one in started.items()}


def _gateway(scheduler_port: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    port = free_port()
    env = {
        "PERSYS_GATEWAY_ADDR": "127.0.0.1",
        "PERSYS_GATEWAY_PORT": str(port),
        "PERSYS_GATEWAY_PUBLIC_PORT": str(free_port()),
        "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{scheduler_port}",
        "PERSYS_GATEWAY_AUDIT_DB": "memory",
        "LOG_LEVEL": "warning",
    }
    return process([str(BIN / "persys-gateway"), "-insecure"], env=env, port=port)


def _ca(root: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    port = free_port()
    env = {
        "PERSYS_CA_DIR": str(root / "ca"),
        "PERSYS_CA_LISTEN": "127.0.0.1",
        "PERSYS_CA_PORT": str(port),
        "PERSYS_LOG_LEVEL": "warn",
    }
    return process([str(BIN / "persys-ca")], env=env, port=port)


def _full(root: Path, bare: int) -> list[Verdict]:
    stored = [marker_unit(), *node_units(NODES), *units(WORKLOADS, nodes=NODES)]
    asyncio.run(write(root / "full.db", stored))
    pages, full, empty = 0, [], []
    for number in range(ROUNDS):  # in turn, so that other load on the machine affects both
        empty.append(_start(root / f"empty-{number}.db")[1])
        pages, seconds = _start(root / "full.db")
        full.append(seconds)
    return [
        Verdict(
            f"memory: {WORKLOADS:,} workloads ({pages / MB:.0f} MB), over bare Python with gRPC",
            pages / bare,
            at_most=4.0,
        ),
        Verdict(
            f"memory: start with {WORKLOADS:,} workloads, over an empty start",
            min(full) / min(empty),
            at_most=2.0,
        ),
    ]


def _start(path: Path) -> tuple[int, float]:
    """Resident pages and CPU seconds of a scheduler when it serves."""
    with scheduler(f"sqlite:{path}", SCHEDULER_NODE_LEASE="10m") as (_, _, started):
        return resident_pages(started.pid), cpu_seconds(started.pid)


if __name__ == "__main__":
    main()
