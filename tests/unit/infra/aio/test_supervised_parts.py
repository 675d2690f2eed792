"""Essential loops end the process; the others are restarted."""

import asyncio

import pytest

from builders import a_supervisor
from persys.errors import FencedError, PersysError, UnavailableError
from persys.infra.aio import supervisor as parts_module
from persys.infra.aio.supervisor import BACKOFF_FIRST, Loop


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
        loop = Loop("it", failing.run, tolerates=(PersysError,))
        running = group.create_task(a_supervisor().keep_running(loop))
        async with asyncio.timeout(20):
            await failing.stays.wait()
        running.cancel()


async def test_the_failure_of_an_essential_part_ends_the_process() -> None:
    loop = Loop("it", Failing(OSError("disk")).run, ends_process=True)

    with pytest.raises(OSError, match="disk"):
        await a_supervisor().keep_running(loop)


@pytest.mark.parametrize(
    "error", [FencedError("replaced"), ExceptionGroup("replaced", [FencedError("replaced")])]
)
async def test_the_loss_of_leadership_ends_a_part(error: Exception) -> None:
    with pytest.raises(type(error)):
        await a_supervisor().keep_running(Loop("it", Failing(error).run))


async def test_an_error_that_is_not_tolerated_is_recorded() -> None:
    supervisor, failing = a_supervisor(), Failing(UnavailableError("expected"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(supervisor.keep_running(Loop("it", failing.run, where="part")))
        async with asyncio.timeout(20):
            await failing.stays.wait()
        running.cancel()

    assert [(error.where, error.key) for error in supervisor.recent()] == [("part", "it")]


@pytest.mark.parametrize("error", [OSError("disk"), UnavailableError("expected")])
async def test_a_part_whose_clean_up_fails_is_not_restarted_when_it_is_cancelled(
    error: Exception,
) -> None:
    """A task group that is cancelled raises the failure of its task instead of the cancellation."""
    runs: list[str] = []
    started = asyncio.Event()

    async def fail_when_cancelled() -> None:
        runs.append("run")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_when_cancelled())

    loop = Loop("it", run, tolerates=(UnavailableError,))
    running = asyncio.create_task(a_supervisor().keep_running(loop))
    await started.wait()
    running.cancel()

    async with asyncio.timeout(20):
        await asyncio.wait([running])
    assert running.cancelled()
    assert runs == ["run"]
