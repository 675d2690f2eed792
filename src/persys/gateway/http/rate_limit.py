"""Limits: requests per second and open streams of each identity, bytes per body.

The rate limit is a token bucket. Full buckets are dropped, and their number is bounded.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from persys.gateway.http.problems import ProblemError
from persys.infra.clock import Clock

BODY_BYTES_MAX = 4 * 1024 * 1024
STREAMS_MAX = 100
# Failed authentications from one address: guessed tokens must not load the schedulers.
FAILED_LOGINS_PER_SECOND = 2.0
FAILED_LOGINS_BURST = 20
_BUCKETS_MAX = 10_000


class _Bucket(Struct):
    left: float
    at: float


class StreamLimit:
    """Limits the open streams of each identity."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, key: str) -> Iterator[None]:
        """Raises ProblemError (429)."""
        if self._taken[key] >= self._most:
            raise ProblemError(429, f"too many open streams: the limit is {self._most}")
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


class RateLimiter:
    def __init__(self, clock: Clock, *, per_second: float, burst: int) -> None:
        """`per_second` 0 disables the limit."""
        self._clock = clock
        self._rate = per_second
        self._burst = float(burst)
        self._buckets: dict[str, _Bucket] = {}

    def count(self, key: str) -> None:
        """Count one request. Raises ProblemError (429) with Retry-After."""
        if not self._rate:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            self._evict(now)
            bucket = self._buckets[key] = _Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            wait = (1 - bucket.left) / self._rate
            headers = {"Retry-After": str(max(1, round(wait)))}
            detail = f"too many requests: the limit is {self._rate:g} per second"
            raise ProblemError(429, detail, headers=headers)
        bucket.left -= 1

    def check(self, key: str) -> None:
        """Check without counting. Raises ProblemError (429) if the bucket is empty."""
        bucket = self._buckets.get(key)
        if bucket is None or not self._rate:
            return
        left = bucket.left + (self._clock.monotonic() - bucket.at) * self._rate
        if left < 1:
            headers = {"Retry-After": str(max(1, round((1 - left) / self._rate)))}
            raise ProblemError(429, "too many failed logins from this address", headers=headers)

    def _evict(self, now: float) -> None:
        if len(self._buckets) < _BUCKETS_MAX:
            return
        full_after = self._burst / self._rate
        self._buckets = {
            key: bucket for key, bucket in self._buckets.items() if now - bucket.at < full_after
        }
        while len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.pop(next(iter(self._buckets)))
