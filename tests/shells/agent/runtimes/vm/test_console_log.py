"""The log of a serial console, in files as virtlogd writes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from persys.agent.runtimes.vm import console
from persys.agent.runtimes.vm.console import lines
from persys.errors import RefusedError
from persys.infra.aio.path_calls import ThreadPathCalls

DEADLINE_SECONDS = 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "console.log"


def add(log: Path, data: bytes, *, kept: int | None = None) -> None:
    """Append to the current file or to a rotated one."""
    path = log if kept is None else log.with_name(f"{log.name}.{kept}")
    with path.open("ab") as file:
        file.write(data)


def rotate(log: Path) -> None:
    log.rename(log.with_name(f"{log.name}.0"))


async def describe(log: Path, *, tail: int = 0) -> bytes:
    chunks = lines(log, ThreadPathCalls(), tail=tail, follow=False, over=lambda: True)
    return b"".join([chunk async for chunk in chunks])


async def until(pieces: AsyncIterator[bytes], end: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not seen.endswith(end):
            seen += await anext(pieces)
    return seen


async def test_rotated_files_are_read_oldest_first(log: Path) -> None:
    add(log, b"one\n", kept=1)
    add(log, b"two\n", kept=0)
    add(log, b"three\n")

    assert await describe(log) == b"one\ntwo\nthree\n"
    assert await describe(log, tail=2) == b"two\nthree\n"
    assert await describe(log, tail=9) == b"one\ntwo\nthree\n"


async def test_a_vm_without_output_has_an_empty_log(log: Path) -> None:
    assert await describe(log) == b""
    assert await describe(log, tail=3) == b""


async def test_control_sequences_are_removed(log: Path) -> None:
    add(log, "\x1bc\x1b[1;31mréd\x1b[0m\r\n\x1b(Bplain\x07\n".encode())

    assert (await describe(log)).decode() == "réd\nplain\n"


async def test_a_follower_continues_in_the_next_file(log: Path) -> None:
    over = False
    add(log, b"one\n")
    async with aclosing(
        lines(log, ThreadPathCalls(), tail=1, follow=True, over=lambda: over)
    ) as chunks:
        assert await until(chunks, b"\n") == b"one\n"
        add(log, b"guest# \x1b[3")
        assert await until(chunks, b" ") == b"guest# "
        add(log, b"1mred\n")
        assert await until(chunks, b"\n") == b"red\n"
        rotate(log)
        add(log, b"two\n")
        assert await until(chunks, b"\n") == b"two\n"

        over = True
        assert [chunk async for chunk in chunks] == []


async def test_a_follower_can_start_before_the_vm(log: Path) -> None:
    async with aclosing(
        lines(log, ThreadPathCalls(), tail=0, follow=True, over=lambda: False)
    ) as chunks:

        async def write() -> None:
            await asyncio.sleep(0)
            add(log, "é".encode()[:1])
            add(log, "é\n".encode()[1:])

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            assert (await until(chunks, b"\n")).decode() == "é\n"


async def test_an_unreadable_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="Is a directory"):
        await describe(tmp_path)


async def test_a_fast_writing_guest_does_not_block_the_reader(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GrowingLog(ThreadPathCalls):
        """Adds output before each read."""

        async def run(self, path: Any, call: Any, **options: Any) -> Any:
            add(log, b"x" * 1000)
            return await super().run(path, call, **options)

    monkeypatch.setattr(console, "ALL_BYTES_MAX", 20_000)
    chunks = lines(log, GrowingLog(), tail=0, follow=False, over=lambda: True)

    async with asyncio.timeout(DEADLINE_SECONDS):
        content = b"".join([chunk async for chunk in chunks])

    assert 20_000 <= len(content) < 25_000
