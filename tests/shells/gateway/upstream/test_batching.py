"""Batched reads: a batch contains all reads that arrived before its call started."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from persys.errors import UnavailableError
from persys.gateway.upstream import batching
from persys.gateway.upstream.batching import Batcher
from shells.gateway.upstream.test_single_flight import run_loop


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch at a time, so that the order is deterministic."""
    monkeypatch.setattr(batching, "LINES", 1)


class Source:
    """Records the requested names, and returns when the test releases it."""

    def __init__(self) -> None:
        self.requested: list[list[str]] = []
        self.may_end = asyncio.Event()

    async def fetch(self, names: Sequence[str]) -> Mapping[str, str]:
        self.requested.append(list(names))
        await self.may_end.wait()
        return {name: name.upper() for name in names if name != "none"}


async def test_a_read_during_a_call_joins_the_next_batch() -> None:
    gathered: Batcher[str] = Batcher()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.get("key", "a", source.fetch))
        await run_loop()
        later = [group.create_task(gathered.get("key", name, source.fetch)) for name in "bcab"]
        await run_loop()
        source.may_end.set()

    assert source.requested == [["a"], ["b", "c", "a"]]
    assert [first.result(), *(one.result() for one in later)] == ["A", "B", "C", "A", "B"]


async def test_a_missing_result_is_none() -> None:
    source = Source()
    source.may_end.set()

    assert await Batcher[str]().get("key", "none", source.fetch) is None


async def test_a_failed_batch_does_not_fail_the_next() -> None:
    gathered: Batcher[str] = Batcher()
    source = Source()

    async def fail(names: Sequence[str]) -> Mapping[str, str]:
        await source.may_end.wait()
        raise UnavailableError("nobody is there")

    async def ask_and_fail() -> None:
        with pytest.raises(UnavailableError):
            await gathered.get("key", "a", fail)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask_and_fail())
        await run_loop()
        well = group.create_task(gathered.get("key", "b", source.fetch))
        await run_loop()
        source.may_end.set()

    assert well.result() == "B"


async def test_a_cancelled_waiter_does_not_affect_its_batch() -> None:
    gathered: Batcher[str] = Batcher()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.get("key", "a", source.fetch))
        await run_loop()
        leaving = group.create_task(gathered.get("key", "b", source.fetch))
        await run_loop()
        leaving.cancel()
        await run_loop()
        later = group.create_task(gathered.get("key", "c", source.fetch))
        await run_loop()
        source.may_end.set()

    assert (first.result(), later.result()) == ("A", "C")
