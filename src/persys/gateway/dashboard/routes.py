"""Routes of the dashboard: its static files under /ui/, and the parser of spec files.

The static files need no authentication: they contain no secrets, and a user without a certificate enters a
token there. Files of assets/ have a hash of their content in their names, so browsers keep them; all others
are revalidated each time.

POST /api/v1/specs/parse converts a YAML spec file to apply requests with the parser of persysctl. Parsing is
expensive, so the token is verified by the scheduler first, and files are parsed off the event loop one at a
time.
"""

import asyncio
import gzip
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct

from persys.core.bounded_yaml import YamlLimits
from persys.gateway.http.middleware import (
    AiohttpHandler,
    Handler,
    RequestContext,
    RequestPipeline,
    read_body,
)
from persys.gateway.http.problems import ProblemError
from persys.infra.aio.offload import off_loop
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_plain
from persys.wire.rest.routes import API
from persys.wire.specfile.parser import read_spec_file
from persys.wire.specfile.spec_documents import SpecDocument
from persys.wire.specfile.strict import SpecFileError

PATH = f"{API}/specs/parse"
BYTES_MAX = 1024 * 1024
LIMITS = YamlLimits(bytes_max=BYTES_MAX, nodes_max=100_000, documents_max=2_000)
_READ_RPC = "GetMode"  # requires only the read permission


def spec_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    yield web.post(PATH, pipeline.serve(_parse_handler()))


def _parse_handler() -> Handler:
    lock = asyncio.Lock()

    async def parse(context: RequestContext) -> web.StreamResponse:
        context.caller.need(_READ_RPC)
        await context.cluster.call(
            _READ_RPC, pb.GetModeRequest(), key="", metadata=context.metadata, idempotent=True
        )
        body = await read_body(context.request)
        if len(body) > BYTES_MAX:
            raise ProblemError(413, f"spec file too large: expected at most {BYTES_MAX} bytes")
        async with lock:
            documents = await off_loop(partial(_read, body))
        plain = {
            "workloads": [to_plain(document.request) for document in documents],
            "lines": [document.line for document in documents],
        }
        return web.Response(body=msgspec.json.encode(plain), content_type="application/json")

    return parse


def _read(body: bytes) -> list[SpecDocument]:
    """Raises ProblemError with the field and the line."""
    try:
        return read_spec_file(body.decode(), LIMITS)
    except UnicodeDecodeError as err:
        raise ProblemError(400, "invalid file: expected UTF-8 text", field="file", line=0) from err
    except SpecFileError as err:
        raise ProblemError(400, str(err), field=err.field, line=err.line) from err


PREFIX = "/ui/"
PAGE = "index.html"
ASSETS = "assets/"

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
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_REVALIDATE = "no-cache"
_KEEP = "public, max-age=31536000, immutable"


class Page(Struct, frozen=True):
    """One static file, plain and compressed."""

    plain: bytes
    compressed: bytes
    media_type: str
    cache_control: str = _REVALIDATE

    @property
    def tag(self) -> str:
        return sha256(self.plain).hexdigest()[:32]


def dashboard_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    found = pages()
    assert PAGE in found, "the dashboard is not built: run `make install`"
    for path in ("/", PREFIX.rstrip("/")):
        yield web.get(path, _redirect_to_page)
    yield web.get(PREFIX, _file_handler(found[PAGE]))
    for name, page in found.items():
        yield web.get(f"{PREFIX}{name}", _file_handler(page))
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
    keeps = path.relative_to(_STATIC).as_posix().startswith(ASSETS)
    return Page(
        plain,
        gzip.compress(plain, mtime=0),
        _TYPES[path.suffix],
        _KEEP if keeps else _REVALIDATE,
    )


async def _redirect_to_page(request: web.Request) -> web.StreamResponse:
    # Script paths are relative, so the page needs the trailing slash.
    raise web.HTTPFound(PREFIX)


def _file_handler(page: Page) -> AiohttpHandler:
    tag = page.tag

    async def answer(request: web.Request) -> web.StreamResponse:
        shown = request.if_none_match or ()
        if any(one.value in (tag, "*") for one in shown):
            response = web.Response(status=304, headers=_HEADERS)
        else:
            response = _file_response(
                page, compressed="gzip" in request.headers.get("Accept-Encoding", "")
            )
        response.etag = tag
        response.headers["Cache-Control"] = page.cache_control
        return response

    return answer


def _file_response(page: Page, *, compressed: bool) -> web.Response:
    response = web.Response(
        body=page.compressed if compressed else page.plain,
        content_type=page.media_type,
        charset="utf-8",
        headers=_HEADERS,
    )
    if compressed:
        response.headers["Content-Encoding"] = "gzip"
    return response
