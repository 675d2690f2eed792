"""Sets of indexes as ascending ranges, each the first and the last index of it.

Indexes that end about in the order of their start need few ranges, whatever their number.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

Ranges = tuple[tuple[int, int], ...]


def size(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def contains(ranges: Sequence[tuple[int, int]], index: int) -> bool:
    at = bisect_left(ranges, index, key=_last)
    return at < len(ranges) and ranges[at][0] <= index


def added(ranges: Ranges, indexes: Iterable[int]) -> Ranges:
    """The ranges with these indexes, adjacent ones joined."""
    singles = ((index, index) for index in indexes)
    joined: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *singles)):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def all_of(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def described(ranges: Sequence[tuple[int, int]], *, shown_max: int = 5) -> str:
    """Such as `0-3, 7 and 12 more`."""
    texts = [
        str(first) if first == last else f"{first}-{last}" for first, last in ranges[:shown_max]
    ]
    more = size(ranges[shown_max:])
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _last(one: tuple[int, int]) -> int:
    return one[1]
