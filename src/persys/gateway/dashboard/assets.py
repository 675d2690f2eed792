"""Serves the dashboard's static files under /ui/ from memory.

They need no authentication: they contain no secrets, and a user without a certificate enters a token there.
File names do not change with the content, so browsers cache them and revalidate each time.
"""

import gzip
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from aiohttp import web
from msgspec import Struct

from persys.gateway.dashboard.specs import spec_routes
from persys.gateway.http.middleware import AiohttpHandler, RequestPipeline

PREFIX = "/ui/"
PAGE = "index.html"

_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Scripts and styles only from files, and text never becomes markup: enforced by the browser.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


class Page(Struct, frozen=True):
    """One static file, plain and compressed."""

    plain: bytes
    compressed: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return sha256(self.plain).hexdigest()[:32]


def dashboard_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    found = pages()
    for path in ("/", PREFIX.rstrip("/")):
        yield web.get(path, _to_the_page)
    yield web.get(PREFIX, _answering(found[PAGE]))
    for name, page in found.items():
        yield web.get(f"{PREFIX}{name}", _answering(page))
    yield from spec_routes(pipeline)


def pages() -> dict[str, Page]:
    """The static files by their path under the prefix."""
    return {
        path.relative_to(_STATIC).as_posix(): _page(path)
        for path in sorted(_STATIC.rglob("*"))
        if path.suffix in _TYPES
    }


def _page(path: Path) -> Page:
    plain = path.read_bytes()
    return Page(plain, gzip.compress(plain, mtime=0), _TYPES[path.suffix])


async def _to_the_page(request: web.Request) -> web.StreamResponse:
    # Script paths are relative, so the page needs the trailing slash.
    raise web.HTTPFound(PREFIX)


def _answering(page: Page) -> AiohttpHandler:
    tag = page.tag

    async def answer(request: web.Request) -> web.StreamResponse:
        shown = request.if_none_match or ()
        if any(one.value in (tag, "*") for one in shown):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            response = _whole(page, compressed="gzip" in request.headers.get("Accept-Encoding", ""))
        response.etag = tag
        return response

    return answer


def _whole(page: Page, *, compressed: bool) -> web.Response:
    response = web.Response(
        body=page.compressed if compressed else page.plain,
        content_type=page.media_type,
        charset="utf-8",
        headers=_HEADERS,
    )
    if compressed:
        response.headers["Content-Encoding"] = "gzip"
    return response
