"""Idempotency-Key: a retried request gets the stored response of the first one.

Responses are stored for ten minutes per identity and cluster. The same key with another request is refused.
Responses with 5xx, or with a status that asks for a retry, are not stored.
"""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple

from aiohttp import web
from msgspec import Struct

from persys.errors import InvalidError
from persys.gateway.http.problems import ProblemError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEEP_SECONDS = 600.0
KEPT_MAX = 10_000
KEPT_BYTES_MAX = 64 * 1024 * 1024
BODY_BYTES_MAX = 64 * 1024
_KEY_LENGTH_MAX = 255
_AGAIN = frozenset({401, 408, 429})
_SERVER_ERROR = 500


class _Kept(Struct, frozen=True):
    until: float
    request: bytes
    status: int
    body: bytes
    content_type: str


class _Key(NamedTuple):
    who: str
    cluster_id: str
    idempotency_key: str


class IdempotencyCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[_Key, _Kept] = {}  # the oldest first
        self._kept_bytes = 0
        self._locks: KeyedLock[_Key] = KeyedLock()

    async def once(
        self,
        request: web.Request,
        who: str,
        cluster_id: str,
        body: bytes,
        do: Callable[[], Awaitable[web.Response]],
    ) -> web.Response:
        """Run `do`, or return the stored response. Raises ProblemError if the key was used differently.

        `cluster_id` is the target cluster, whether it comes from the path, the header or the query.
        """
        idempotency_key = request.headers.get(IDEMPOTENCY_KEY)
        if idempotency_key is None:
            return await do()
        if not 0 < len(idempotency_key) <= _KEY_LENGTH_MAX:
            raise InvalidError(IDEMPOTENCY_KEY, f"expected 1 to {_KEY_LENGTH_MAX} characters")
        key = _Key(who, cluster_id, idempotency_key)
        mark = _mark(request, body)
        async with self._locks.hold(key):
            self._forget()
            if (kept := self._kept.get(key)) is not None:
                return _again(kept, mark)
            response = await do()
            self._keep(key, mark, response)
            return response

    def _keep(self, key: _Key, mark: bytes, response: web.Response) -> None:
        body = response.body
        if response.status >= _SERVER_ERROR or response.status in _AGAIN:
            return
        if isinstance(body, bytes) and len(body) <= BODY_BYTES_MAX:
            until = self._clock.monotonic() + KEEP_SECONDS
            self._kept[key] = _Kept(until, mark, response.status, body, response.content_type)
            self._kept_bytes += len(body)

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._kept:
            oldest = next(iter(self._kept))
            has_room = len(self._kept) < KEPT_MAX and self._kept_bytes < KEPT_BYTES_MAX
            if self._kept[oldest].until > now and has_room:
                return
            self._kept_bytes -= len(self._kept.pop(oldest).body)


def _mark(request: web.Request, body: bytes) -> bytes:
    return sha256(b"\0".join((request.method.encode(), request.path_qs.encode(), body))).digest()


def _again(kept: _Kept, mark: bytes) -> web.Response:
    if kept.request != mark:
        raise ProblemError(422, f"this {IDEMPOTENCY_KEY} was used for another request")
    return web.Response(
        status=kept.status,
        body=kept.body,
        content_type=kept.content_type,
        headers={REPLAYED: "true"},
    )
