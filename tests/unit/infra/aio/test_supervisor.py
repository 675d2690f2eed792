"""The supervisor: which exceptions are contained, which pass, and which are stored for doctor."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from persys.errors import ConflictError
from persys.infra.aio.supervisor import BACKOFF_MAX, RECENT_MAX, InternalError, Supervisor
from persys.infra.clock import SystemClock


def a_supervisor(registry: CollectorRegistry | None = None) -> Supervisor:
    return Supervisor("agent", SystemClock(), registry or CollectorRegistry())


def ignore(_error: InternalError) -> None:
    """These tests check the stored errors."""


@pytest.mark.parametrize(
    "err", [OSError(36, "File name too long"), MemoryError(), AssertionError()]
)
def test_an_unexpected_exception_fails_only_its_key(err: Exception) -> None:
    registry = CollectorRegistry()
    supervisor = a_supervisor(registry)
    failures: list[InternalError] = []

    with supervisor.contain("worker.step", "w1", failed=failures.append):
        raise err

    assert [(failure.where, failure.key, failure.count) for failure in failures] == [
        ("worker.step", "w1", 1)
    ]
    counted = registry.get_sample_value(
        "persys_internal_errors_total", {"component": "agent", "where": "worker.step"}
    )
    assert counted == 1


def test_an_expected_error_passes_through() -> None:
    supervisor = a_supervisor()

    with (
        pytest.raises(ConflictError),
        supervisor.contain("worker.step", "w1", failed=ignore),
    ):
        raise ConflictError("changed")

    assert not supervisor.recent()


def test_cancellation_passes_through() -> None:
    supervisor = a_supervisor()

    with (
        pytest.raises(asyncio.CancelledError),
        supervisor.contain("worker.step", "w1", failed=ignore),
    ):
        raise asyncio.CancelledError

    assert not supervisor.recent()


def test_a_group_of_expected_errors_passes_and_a_mixed_one_is_contained() -> None:
    supervisor = a_supervisor()

    with (
        pytest.raises(ExceptionGroup),
        supervisor.contain("worker.step", "w1", failed=ignore),
    ):
        raise ExceptionGroup("steps", [ConflictError("changed")])
    with supervisor.contain("worker.step", "w1", failed=ignore):
        raise ExceptionGroup("steps", [ConflictError("changed"), ValueError("bad port")])

    assert [error.text for error in supervisor.recent()] == ["ValueError: bad port"]


def test_repetitions_are_counted_and_the_delay_grows() -> None:
    supervisor = a_supervisor()
    waits = []

    for _ in range(20):
        error = supervisor.record("worker.step", "w1", ValueError("bad"))
        waits.append(supervisor.retry_after(error))

    assert error.count == 20
    assert waits[:3] == [timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=4)]
    assert waits[-1] == BACKOFF_MAX


def test_only_the_newest_errors_are_kept() -> None:
    supervisor = a_supervisor()

    for number in range(RECENT_MAX + 5):
        supervisor.record("worker.step", f"w{number}", ValueError("x" * 10_000))

    kept = supervisor.recent()
    assert len(kept) == RECENT_MAX
    assert kept[0].key == f"w{RECENT_MAX + 4}"
    assert len(kept[0].text) <= 400


def test_an_error_that_is_resolved_is_no_longer_shown() -> None:
    supervisor = a_supervisor()
    supervisor.record("worker.step", "w1", ValueError("bad"))

    supervisor.resolved("worker.step", "w1")

    assert supervisor.recent() == []
    assert supervisor.record("worker.step", "w1", ValueError("bad")).last_at <= datetime.now(UTC)
