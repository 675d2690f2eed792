import pytest

from persys.core.agent.admission import LastExit, crashes_after, last_exit, quarantine
from persys.model.ids import WorkloadId

WEB, DB = WorkloadId("web"), WorkloadId("db")


@pytest.mark.parametrize(
    ("clean", "trace", "expected"),
    [
        (True, "", LastExit.CLEAN),
        (True, "left over", LastExit.CLEAN),
        (False, "", LastExit.KILLED),
        (False, "\n", LastExit.KILLED),
        (False, "Fatal Python error: Segmentation fault", LastExit.CRASHED),
    ],
)
def test_an_unclean_exit_is_a_crash_only_with_a_matching_trace(
    clean: bool, trace: str, expected: LastExit
) -> None:
    assert last_exit(clean=clean, trace=trace) is expected


@pytest.mark.parametrize("ended", [LastExit.CLEAN, LastExit.KILLED])
def test_an_exit_that_is_not_a_crash_counts_for_no_order(ended: LastExit) -> None:
    assert crashes_after({WEB: 1}, ended, alone=WEB) == {WEB: 1}


def test_a_crash_counts_for_the_order_that_was_alone() -> None:
    assert crashes_after({WEB: 1}, LastExit.CRASHED, alone=WEB) == {WEB: 2}
    assert crashes_after({WEB: 1}, LastExit.CRASHED, alone=DB) == {WEB: 1, DB: 1}


def test_a_crash_while_none_was_alone_counts_for_none() -> None:
    assert crashes_after({WEB: 1}, LastExit.CRASHED, alone=None) == {WEB: 1}


def test_an_order_is_quarantined_from_its_second_crash_on() -> None:
    assert quarantine(1) is None

    failure = quarantine(2)
    assert failure is not None
    assert failure.retryable
    assert "crashed the agent 2 times" in failure.message
