import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest
from prometheus_client import CollectorRegistry

from persys.infra.aio.keyed_queue import KeyedQueue
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import SystemClock


def work_that(log: list[str], name: str, gate: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        log.append(f"{name} begins")
        await gate.wait()
        log.append(f"{name} ends")

    return work


async def settle() -> None:
    """Let every ready task run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_slow_key_does_not_delay_another() -> None:
    log: list[str] = []
    never, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=nullcontext)
        queues.submit("n1", work_that(log, "slow", never))
        queues.submit("n2", work_that(log, "fast", at_once))
        await settle()

        assert log == ["slow begins", "fast begins", "fast ends"]
        never.set()


async def test_work_of_one_key_runs_serially_in_the_order_of_submission() -> None:
    log: list[str] = []
    gates = [asyncio.Event() for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=nullcontext)
        for index, gate in enumerate(gates):
            queues.submit("n1", work_that(log, str(index), gate))
        for gate in reversed(gates):  # the last may end first, but has not started
            gate.set()
            await settle()

    assert log == [f"{index} {word}" for index in range(3) for word in ("begins", "ends")]


async def test_width_limits_the_concurrent_work_of_one_key() -> None:
    log: list[str] = []
    gates = [asyncio.Event() for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=nullcontext, width=2)
        for index, gate in enumerate(gates):
            queues.submit("n1", work_that(log, str(index), gate))
        await settle()
        assert log == ["0 begins", "1 begins"]

        gates[1].set()
        await settle()
        assert log[2:] == ["1 ends", "2 begins"]
        for gate in gates:
            gate.set()

    assert sorted(log) == sorted(f"{i} {word}" for i in range(4) for word in ("begins", "ends"))


async def test_work_may_submit_more_work_for_its_own_key() -> None:
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=nullcontext)

        async def count_down(left: int) -> None:
            seen.append(left)
            if left:
                queues.submit("n1", lambda: count_down(left - 1))

        queues.submit("n1", lambda: count_down(3))

    assert seen == [3, 2, 1, 0]


async def test_depth_counts_waiting_and_running_work() -> None:
    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=nullcontext)
        for key in ("n1", "n1", "n2"):
            queues.submit(key, work_that([], key, gate))
        await settle()
        assert queues.depth() == 3
        gate.set()

    assert queues.depth() == 0


async def test_a_failure_that_is_not_contained_ends_the_group() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.TaskGroup() as group:
            KeyedQueue[str](group, contain=nullcontext).submit("n1", fail)

    assert error.value.subgroup(ZeroDivisionError)


async def test_a_contained_failure_ends_only_that_piece_of_work() -> None:
    supervisor = Supervisor("agent", SystemClock(), CollectorRegistry())
    lane = KeyedWork[str](supervisor, "lane", SystemClock())
    done: list[str] = []

    async def fail() -> None:
        raise ZeroDivisionError

    async def succeed(name: str) -> None:
        done.append(name)

    async with asyncio.TaskGroup() as group:
        queues: KeyedQueue[str] = KeyedQueue(group, contain=lane.contain)
        queues.submit("n1", fail)
        queues.submit("n1", lambda: succeed("next of the same key"))
        queues.submit("n2", lambda: succeed("other key"))

    assert sorted(done) == ["next of the same key", "other key"]
    assert queues.depth() == 0
