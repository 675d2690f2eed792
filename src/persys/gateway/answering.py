"""Answers as HTTP has them: with a tag of their content, not sent again when it is the same, and packed.

The tag is made from the JSON before it is packed: the same content has the same tag, however it travels.
"""

from hashlib import blake2b

from aiohttp import ETag, web
from msgspec import Struct

from persys.wire.beside import DATA_AGE_MS, MODE

JSON = "application/json"
PACK_BYTES = 1024
NEXT_CURSOR = "X-Next-Cursor"


class Encoded(Struct, frozen=True):
    body: bytes
    tag: str
    next_cursor: str = ""
    beside: dict[str, str] = {}  # how far it can be trusted, as headers


def encoded(
    body: bytes, next_cursor: str = "", *, mode: str = "", data_age_ms: str = ""
) -> Encoded:
    """`mode`: of the scheduler, unless it is the normal one."""
    beside = {MODE: mode, DATA_AGE_MS: data_age_ms} if mode else {}
    return Encoded(body, tag_of(body), next_cursor, beside)


def tag_of(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def answer(request: web.Request, found: Encoded) -> web.Response:
    """To a read."""
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": "no-cache", **found.beside}
    if found.next_cursor:
        url = request.rel_url.update_query(cursor=found.next_cursor)
        headers |= {NEXT_CURSOR: found.next_cursor, "Link": f'<{url}>; rel="next"'}
    if "If-None-Match" in request.headers and _is_known(request, found.tag):
        return web.Response(status=304, headers=headers)
    return packed(request, web.Response(body=found.body, content_type=JSON, headers=headers))


def packed(request: web.Request, response: web.Response) -> web.Response:
    body = response.body
    if isinstance(body, bytes) and len(body) > PACK_BYTES:
        response.headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
    return response


def _is_known(request: web.Request, tag: str) -> bool:
    return names(request.if_none_match, tag)


def names(tags: tuple[ETag, ...] | None, *mine: str) -> bool:
    """Whether one of these is among the tags that a client named."""
    return any(one.value in ("*", *mine) for one in tags or ())
