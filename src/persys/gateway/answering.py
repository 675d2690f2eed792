"""Answers as HTTP has them: with a tag of their content, not sent again when it is the same, and packed.

The tag is made from the JSON before it is packed: the same content has the same tag, however it travels.
"""

from hashlib import blake2b

from aiohttp import ETag, web
from msgspec import Struct
from multidict import CIMultiDict

from persys.wire.beside import DATA_AGE_MS, MODE

JSON = "application/json"
PACK_BYTES = 1024
NEXT_CURSOR = "X-Next-Cursor"


class Encoded(Struct, frozen=True, eq=False):
    """An answer that may be sent to many: nothing of it is changed after it was made."""

    body: bytes
    tag: str
    headers: CIMultiDict[str]
    next_cursor: str = ""


def encoded(
    body: bytes, next_cursor: str = "", *, mode: str = "", data_age_ms: str = ""
) -> Encoded:
    """`mode`: of the scheduler, unless it is the normal one."""
    tag = tag_of(body)
    headers = CIMultiDict({"Content-Type": JSON, "ETag": f'"{tag}"', "Cache-Control": "no-cache"})
    if mode:  # how far it can be trusted
        headers.update({MODE: mode, DATA_AGE_MS: data_age_ms})
    if next_cursor:
        headers[NEXT_CURSOR] = next_cursor
    return Encoded(body, tag, headers, next_cursor)


def tag_of(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def answer(request: web.Request, found: Encoded) -> web.Response:
    """To a read."""
    headers = found.headers.copy()
    if found.next_cursor:
        url = request.rel_url.update_query(cursor=found.next_cursor)
        headers["Link"] = f'<{url}>; rel="next"'
    if "If-None-Match" in request.headers and names(request.if_none_match, found.tag):
        del headers["Content-Type"]
        return web.Response(status=304, headers=headers)
    response = web.Response(body=found.body, headers=headers)
    return packed(request, response) if len(found.body) > PACK_BYTES else response


def packed(request: web.Request, response: web.Response) -> web.Response:
    body = response.body
    if isinstance(body, bytes) and len(body) > PACK_BYTES:
        response.headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
    return response


def names(tags: tuple[ETag, ...] | None, *mine: str) -> bool:
    """Whether one of these is among the tags that a client named."""
    return any(one.value in ("*", *mine) for one in tags or ())
