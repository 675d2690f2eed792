"""Lines of a wait: one per change and per quarter of a pull, never one per poll."""

import pytest

from persys.cli.framework.live import LiveState, live_view


def pull(share: float) -> LiveState:
    return LiveState("pull", f"{share * 40:.0f} of 40 MB", share, ticks=True)


def test_progress_is_printed_by_quarters(capsys: pytest.CaptureFixture[str]) -> None:
    with live_view(quiet=False) as update:
        for percent in range(0, 101, 5):
            update({"web": pull(percent / 100)})

    assert capsys.readouterr().out.splitlines() == [
        "web: pull 0 % (0 of 40 MB)",
        "web: pull 25 % (10 of 40 MB)",
        "web: pull 50 % (20 of 40 MB)",
        "web: pull 75 % (30 of 40 MB)",
        "web: pull 100 % (40 of 40 MB)",
    ]


def test_a_state_is_printed_once_per_change(capsys: pytest.CaptureFixture[str]) -> None:
    with live_view(quiet=False) as update:
        for detail in ("a", "a", "b"):
            update({"web": LiveState("starting", detail), "db": LiveState("Pending")})

    assert capsys.readouterr().out.splitlines() == [
        "web: starting (a)",
        "db: Pending",
        "web: starting (b)",
    ]


def test_work_of_unknown_size_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with live_view(quiet=True) as update:
        for count in range(9):
            update({"web": LiveState("pull", f"{count} of 9 layers", ticks=True)})

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "web: pull (0 of 9 layers)\n")
