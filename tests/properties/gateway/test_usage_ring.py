"""The usage ring, for any sequence of samples."""

from hypothesis import given
from hypothesis import strategies as st

from persys.gateway.usage import NODE, Sample, UsageRing

Samples = dict[tuple[str, str], tuple[int]]
KEYS = [(NODE, name) for name in ("a", "b", "c")]
samples = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 1000)), max_size=3)


@given(st.lists(samples, max_size=40), st.integers(1, 6))
def test_the_last_samples_of_each_key_are_kept(added: list[Samples], keep: int) -> None:
    ring = UsageRing(keep=keep)
    for at, values in enumerate(added):
        ring.add(float(at), values)

    for key in KEYS:
        first = max(0, len(added) - keep)
        wanted = [Sample(at, added[at][key]) for at in range(first, len(added)) if key in added[at]]
        assert ring.read(key) == wanted


@given(st.lists(samples, max_size=20), st.integers(0, 2))
def test_there_are_never_more_series_than_allowed(added: list[Samples], series_max: int) -> None:
    ring = UsageRing(keep=3, series_max=series_max)
    for at, values in enumerate(added):
        ring.add(float(at), values)

    assert sum(bool(ring.read(key)) for key in KEYS) <= series_max
