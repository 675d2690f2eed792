"""Essential loops end the process; the others are restarted."""

import asyncio

import pytest

from builders import a_supervisor
from persys.errors import UnavailableError
from persys.infra.aio import supervisor as parts_module
from persys.infra.aio.supervisor import BACKOFF_FIRST, OnError, Part, supervised_parts
from persys.infra.clock import SystemClock


class Failing:
    """Fails in its first runs, then keeps running."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.stays = asyncio.Event()

    async def run(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.stays.set()
        await asyncio.Event().wait()


def wrapped(part: Part, on_error: OnError) -> Part:
    return supervised_parts({"it": part}, lambda _name: on_error, a_supervisor(), SystemClock())[
        "it"
    ]


@pytest.fixture(autouse=True)
def fast_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "BACKOFF_FIRST", BACKOFF_FIRST / 100)


@pytest.mark.parametrize(
    "error",
    [
        OSError("disk"),
        MemoryError(),
        UnavailableError("expected"),
        ExceptionGroup("both", [OSError(), UnavailableError("expected")]),
        ExceptionGroup("expected", [UnavailableError("expected")]),
    ],
)
async def test_a_part_that_fails_is_restarted(error: Exception) -> None:
    failing = Failing(error, error)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_awaited(wrapped(failing.run, OnError.RESTART)))
        async with asyncio.timeout(20):
            await failing.stays.wait()
        running.cancel()


async def test_the_failure_of_an_essential_part_ends_the_process() -> None:
    with pytest.raises(OSError, match="disk"):
        await wrapped(Failing(OSError("disk")).run, OnError.EXIT)()


async def _awaited(part: Part) -> None:
    await part()
