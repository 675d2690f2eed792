from datetime import UTC

from persys.infra.clock import SystemClock


def test_the_time_people_read_is_aware_and_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_the_other_time_never_falls() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(100)]

    assert seen == sorted(seen)
