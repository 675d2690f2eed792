"""Events of denied calls are bounded, whatever an attacker does."""

from persys.core.auth.denials import REPORTED_MAX, WINDOW_SECONDS, Denial, DenialLimiter


def a_denial(who: str = "viewer/eve", method: str = "ApplyWorkload") -> Denial:
    return Denial(who, "viewer", method, "ipv4:10.0.0.1:5", "role", "may not")


def test_the_first_denial_of_each_pair_is_reported_and_the_others_counted() -> None:
    limiter = DenialLimiter()
    denials = [limiter.take(a_denial(), 0.0) for _ in range(18)]
    assert denials[0] is not None
    assert "viewer/eve at ipv4:10.0.0.1:5 was denied ApplyWorkload (role)" in denials[0]
    assert denials[1:] == [None] * 17
    assert limiter.close(WINDOW_SECONDS - 1) == []
    assert limiter.close(WINDOW_SECONDS) == [
        "viewer/eve was denied ApplyWorkload: 17 more in the last minute"
    ]


def test_a_window_without_omitted_denials_reports_nothing() -> None:
    limiter = DenialLimiter()
    assert limiter.take(a_denial(), 0.0)
    assert limiter.close(WINDOW_SECONDS) == []
    assert limiter.ends_at is None
    assert limiter.take(a_denial(), WINDOW_SECONDS + 1)


def test_the_line_with_the_number_stands_for_the_next_window() -> None:
    limiter = DenialLimiter()
    for _ in range(2):
        limiter.take(a_denial(), 0.0)
    assert len(limiter.close(WINDOW_SECONDS)) == 1
    assert limiter.take(a_denial(), WINDOW_SECONDS + 1) is None
    assert len(limiter.close(2 * WINDOW_SECONDS)) == 1


def test_an_attacker_under_many_names_gets_a_bounded_number_of_lines() -> None:
    limiter = DenialLimiter()
    lines = 0
    for second in range(600):
        lines += len(limiter.close(float(second)))
        for number in range(100):
            allowed = limiter.take(a_denial(f"viewer/{second}-{number}"), float(second))
            lines += allowed is not None
    assert lines <= 10 * (REPORTED_MAX + 1)


def test_suppressed_denials_of_many_names_are_reported_as_one_count() -> None:
    limiter = DenialLimiter(reported_max=1)
    for name in ("viewer/a", "viewer/b", "viewer/c"):
        limiter.take(a_denial(name), 0.0)
    assert limiter.close(WINDOW_SECONDS) == ["2 more calls were denied in the last minute"]


def test_an_unknown_identity_is_reported_as_unknown() -> None:
    denial = DenialLimiter().take(a_denial(who=""), 0.0)
    assert denial is not None
    assert denial.startswith("unknown identity at ")
