"""Faults at every port of the agent: the process survives, other workloads converge, the failure is reported.

The cases are generated from the ports themselves, so that a new call of a port is covered without a new test.
A sample runs each time, all of them in the full suite.
"""

import asyncio
import errno
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from persys.agent.api.tunnel_server import AbortedError
from persys.agent.node import host
from persys.agent.node.usage import Sampler
from persys.agent.ports import Disks, GarbageSource, Host, PoolSource, Runtime, Volumes
from persys.agent.runtimes.detect import NodeRuntimes
from persys.core.agent.garbage import Item, Kind
from persys.core.agent.progress import Artefact
from persys.core.agent.storage import LocalPool
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from shells.agent.in_memory import (
    MemoryRuntime,
    Node,
    NoVolumes,
    RunningAgent,
    a_running_agent,
)

HUGE = "x" * 8_000_000
PORTS = (Runtime, Volumes, GarbageSource, Disks, PoolSource, Sampler, Host)
FAULTS: dict[str, Callable[[], Exception]] = {
    "OSError": lambda: OSError(errno.ENAMETOOLONG, "File name too long"),
    "ENOSPC": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "RuntimeError": lambda: RuntimeError("Symlink loop"),
    "ValueError": lambda: ValueError("embedded null byte"),
    "MemoryError": MemoryError,
    "hang": AssertionError,
    "oversized": AssertionError,
}
SAMPLE = 24


class Case(NamedTuple):
    port: type
    method: str
    fault: str

    @property
    def is_visible_to_user(self) -> bool:
        """Whether the workload that it strikes shows it. A runtime that is away is reported as that."""
        concerns_one = self.port in (Runtime, Volumes) and self.method not in ("changes", "ping")
        return concerns_one and self.fault != "oversized"

    def __str__(self) -> str:
        return f"{self.port.__name__}.{self.method}-{self.fault}"


def all_cases() -> Iterator[Case]:
    for port in PORTS:
        for method in sorted(name for name in vars(port) if not name.startswith("_")):
            is_async = inspect.iscoroutinefunction(vars(port)[method])
            for fault in FAULTS:
                if is_async or fault not in ("hang", "oversized"):
                    yield Case(port, method, fault)


ALL = list(all_cases())
CHOSEN = Random("blast radius").sample(ALL, SAMPLE)


class Faulty:
    """Passes everything on to `port`, except that one method fails for the workload `bad`.

    A call that names no workload fails as long as the fault is on.
    """

    def __init__(self, port: object, case: Case) -> None:
        self._port = port
        self._case = case
        self.on = True
        self.struck = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name != self._case.method or not self.on:
            return found
        if not callable(found):
            self._raise()
        if inspect.isasyncgenfunction(found):
            return self._stream
        if inspect.iscoroutinefunction(found):
            return self._waiting(found)
        return self._direct(found)

    def _waiting(self, found: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            if not concerns(arguments, "bad") or not self.on:
                return await found(*arguments, **named)
            self.struck += 1
            if self._case.fault == "hang":
                await asyncio.Event().wait()
            if self._case.fault == "oversized":
                return oversized(await found(*arguments, **named), self._case.method)
            raise FAULTS[self._case.fault]()

        return call

    def _direct(self, found: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if concerns(arguments, "bad") and self.on:
                self._raise()
            return found(*arguments, **named)

        return call

    async def _stream(self) -> Any:
        self._raise()
        yield None

    def _raise(self) -> None:
        self.struck += 1
        raise FAULTS[self._case.fault]()


def concerns(arguments: tuple[Any, ...], name: str) -> bool:
    """Whether a call is for this workload, or for none in particular."""
    if not arguments:
        return True
    first = arguments[0]
    if isinstance(first, Path):
        return True
    named = getattr(first, "workload_id", None) or getattr(first, "name", None) or str(first)
    return name in str(named)


def oversized(answer: Any, method: str) -> Any:
    match answer:
        case Artefact():
            facts = {f"fact{number}": "x" * 100_000 for number in range(200)}
            ports = tuple(f"{port}->80/tcp" for port in range(100_000))
            return msgspec.structs.replace(answer, error=HUGE, ports=ports, facts=facts)
        case str():
            return HUGE
        case list() if method == "rooms":
            return [LocalPool(f"pool{number}", "local", 1) for number in range(100_000)]
        case list() if method == "sample":
            return []
        case list():
            return [Item(Kind.CONTAINER, WorkloadId("stray"), f"c{n}") for n in range(20_000)]
        case _:
            return answer


class EmptyPorts:
    """Ports beside the runtime, with nothing in them."""

    async def inventory(self) -> list[Any]:
        return []

    async def images(self, _fetched: object) -> list[Any]:
        return []

    async def remove(self, _item: Item) -> str:
        return ""

    async def delete(self, _workload_id: WorkloadId, _name: str) -> None: ...

    async def local_pools(self) -> list[LocalPool]:
        return []

    async def sample(self) -> list[Any]:
        return []


def a_faulty_node(case: Case, directory: Path) -> tuple[Node, Faulty]:
    valid: dict[type, object] = {
        Runtime: MemoryRuntime(),
        Volumes: NoVolumes(),
        Host: host,
        GarbageSource: EmptyPorts(),
        Disks: EmptyPorts(),
        PoolSource: EmptyPorts(),
        Sampler: EmptyPorts(),
    }
    faulty = Faulty(valid[case.port], case)
    faulty.on = False  # some of it is read before anything runs
    ports: dict[type, Any] = {**valid, case.port: faulty}
    more = NodeRuntimes(
        samplers={"test": ports[Sampler]},
        garbage={frozenset(Kind): ports[GarbageSource]},
        disks=ports[Disks],
        pools=ports[PoolSource],
    )
    node = Node(
        directory,
        runtime=ports[Runtime],
        volumes=ports[Volumes],
        host=ports[Host],
        more=more,
    )
    return node, faulty


async def survives(case: Case, directory: Path) -> None:
    node, faulty = a_faulty_node(case, directory)
    async with a_running_agent(node) as running:
        faulty.on = True
        refused = not await is_taken(running, "bad")
        await running.apply("good", binds=("/srv/good",))
        await running.until_actual("good", Actual.RUNNING)
        if case.is_visible_to_user and faulty.struck:
            await running.until(lambda: refused or is_reported(running), "it is reported")
        await running.delete("good")
        await running.until_actual("good", None)
        with suppress(AbortedError):
            await running.delete("bad")
        assert heartbeat_bytes(running) < 1_000_000

        faulty.on = False
        await running.until_async(lambda: is_taken(running, "bad"), "bad is taken")
        await running.until_actual("bad", Actual.RUNNING)
        await running.delete("bad")
        await running.until_actual("bad", None)


async def is_taken(running: RunningAgent, name: str) -> bool:
    """It may be refused while the fault is on: then nothing is kept of it."""
    with suppress(AbortedError):
        response = await running.apply(name, binds=(f"/srv/{name}",))
        return bool(response.applied)
    return False


def is_reported(running: RunningAgent) -> bool:
    return bool(running.errors) or running.status("bad") in (Actual.FAILED, Actual.UNKNOWN)


def heartbeat_bytes(running: RunningAgent) -> int:
    listed = (running.api._order_api.status(entry) for entry in running.journal.entries.values())
    return sum(status.ByteSize() for status in listed)


@pytest.mark.parametrize("case", CHOSEN, ids=str)
async def test_a_fault_at_a_port_affects_one_workload(case: Case, tmp_path: Path) -> None:
    await survives(case, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("case", ALL, ids=str)
async def test_any_fault_at_any_port_affects_one_workload(case: Case, tmp_path: Path) -> None:
    await survives(case, tmp_path)
