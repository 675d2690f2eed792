"""The wall clock and the monotonic clock, and steps of the system clock."""

from datetime import UTC, datetime, timedelta

from persys.infra.clock import SystemClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Machine:
    """A machine whose clocks the test sets."""

    def __init__(self) -> None:
        self.wall = NOON
        self.seconds = 0.0
        self.clock = SystemClock(wall=lambda: self.wall, monotonic=lambda: self.seconds)

    def passes(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


def test_the_wall_clock_is_aware_and_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_the_monotonic_clock_never_decreases() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(100)]

    assert seen == sorted(seen)


def test_a_step_forward_is_followed() -> None:
    machine = Machine()

    machine.wall += HOUR

    assert machine.clock.now() == NOON + HOUR


def test_after_a_step_back_the_time_continues_at_its_rate() -> None:
    machine = Machine()
    machine.wall -= HOUR

    machine.passes(10)
    first = machine.clock.now()
    machine.passes(10)
    second = machine.clock.now()

    assert first == NOON + timedelta(seconds=10)
    assert second == NOON + timedelta(seconds=20)


def test_the_system_clock_is_followed_again_once_it_has_caught_up() -> None:
    machine = Machine()
    machine.wall -= timedelta(seconds=30)
    machine.clock.now()

    machine.wall += timedelta(seconds=90)

    assert machine.clock.now() == machine.wall
