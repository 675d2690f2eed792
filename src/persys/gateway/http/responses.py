"""HTTP responses: ETag, 304 for unchanged content, gzip compression.

The ETag is computed from the uncompressed JSON: equal content has an equal tag in every encoding.
"""

from hashlib import blake2b
from typing import Any

import msgspec
from aiohttp import ETag, web
from msgspec import Struct
from multidict import CIMultiDict

from persys.wire.metadata_keys import DATA_AGE_MS, MODE

JSON = "application/json"
PACK_BYTES = 1024
NEXT_CURSOR = "X-Next-Cursor"


class JsonBody(Struct, frozen=True, eq=False):
    """A JSON response body with its headers. It is immutable, so several requests can share it."""

    body: bytes
    tag: str
    headers: CIMultiDict[str]
    next_cursor: str = ""


def json_body(
    body: bytes, next_cursor: str = "", *, mode: str = "", data_age_ms: str = ""
) -> JsonBody:
    """`mode` is the mode of the scheduler, or empty in normal mode."""
    tag = etag_of(body)
    headers = CIMultiDict({"Content-Type": JSON, "ETag": f'"{tag}"', "Cache-Control": "no-cache"})
    if mode:  # the data may be stale
        headers.update({MODE: mode, DATA_AGE_MS: data_age_ms})
    if next_cursor:
        headers[NEXT_CURSOR] = next_cursor
    return JsonBody(body, tag, headers, next_cursor)


def etag_of(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def answer(request: web.Request, found: JsonBody) -> web.Response:
    """The response to a read: 200 with the body, or 304 if the client has this content."""
    headers = found.headers.copy()
    if found.next_cursor:
        url = request.rel_url.update_query(cursor=found.next_cursor)
        headers["Link"] = f'<{url}>; rel="next"'
    if "If-None-Match" in request.headers and names(request.if_none_match, found.tag):
        del headers["Content-Type"]
        return web.Response(status=304, headers=headers)
    response = web.Response(body=found.body, headers=headers)
    return compressed(request, response) if len(found.body) > PACK_BYTES else response


def compressed(request: web.Request, response: web.Response) -> web.Response:
    body = response.body
    if isinstance(body, bytes) and len(body) > PACK_BYTES:
        response.headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
    return response


def names(tags: tuple[ETag, ...] | None, *mine: str) -> bool:
    """Whether one of `mine` is among the tags of the request header."""
    return any(one.value in ("*", *mine) for one in tags or ())


def json_response(request: web.Request, plain: Any) -> web.Response:
    """The response to a read with plain data."""
    return answer(request, json_body(msgspec.json.encode(plain)))
