"""Reads that are gathered: all that were asked for before a call began are in it, and no others wait."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from persys.errors import UnavailableError
from persys.gateway import gathering
from persys.gateway.gathering import Gathered
from shells.gateway.test_sharing import turns


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is certain who waits for whom."""
    monkeypatch.setattr(gathering, "LINES", 1)


class Source:
    """Remembers what it was asked for, and answers when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.may_end = asyncio.Event()

    async def fetch(self, names: Sequence[str]) -> Mapping[str, str]:
        self.asked.append(list(names))
        await self.may_end.wait()
        return {name: name.upper() for name in names if name != "none"}


async def test_what_is_asked_for_while_a_call_is_under_way_is_in_the_next() -> None:
    gathered: Gathered[str] = Gathered()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.ask("key", "a", source.fetch))
        await turns()
        later = [group.create_task(gathered.ask("key", name, source.fetch)) for name in "bcab"]
        await turns()
        source.may_end.set()

    assert source.asked == [["a"], ["b", "c", "a"]]
    assert [first.result(), *(one.result() for one in later)] == ["A", "B", "C", "A", "B"]


async def test_what_was_not_brought_is_none() -> None:
    source = Source()
    source.may_end.set()

    assert await Gathered[str]().ask("key", "none", source.fetch) is None


async def test_a_call_that_fails_fails_for_its_own_and_not_for_the_next() -> None:
    gathered: Gathered[str] = Gathered()
    source = Source()

    async def fail(names: Sequence[str]) -> Mapping[str, str]:
        await source.may_end.wait()
        raise UnavailableError("nobody is there")

    async def ask_and_fail() -> None:
        with pytest.raises(UnavailableError):
            await gathered.ask("key", "a", fail)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask_and_fail())
        await turns()
        well = group.create_task(gathered.ask("key", "b", source.fetch))
        await turns()
        source.may_end.set()

    assert well.result() == "B"


async def test_who_leaves_before_its_turn_takes_nobody_along() -> None:
    gathered: Gathered[str] = Gathered()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(gathered.ask("key", "a", source.fetch))
        await turns()
        leaving = group.create_task(gathered.ask("key", "b", source.fetch))
        await turns()
        leaving.cancel()
        await turns()
        later = group.create_task(gathered.ask("key", "c", source.fetch))
        await turns()
        source.may_end.set()

    assert (first.result(), later.result()) == ("A", "C")
