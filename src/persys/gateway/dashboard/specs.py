"""POST /api/v1/specs/parse: converts a YAML spec file to apply requests, for the dashboard.

It uses the same parser as persysctl. Parsing is expensive, so the token is verified by the scheduler first.
Files are parsed off the event loop, one at a time.
"""

import asyncio
from collections.abc import Iterator
from functools import partial

import msgspec
from aiohttp import web

from persys.core.bounded_yaml import YamlLimits
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline, read_body
from persys.gateway.http.problems import ProblemError
from persys.infra.aio.offload import off_loop
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_plain
from persys.wire.rest.routes import API
from persys.wire.specfile.parser import SpecDocument, read_spec_file
from persys.wire.specfile.strict import SpecFileError

PATH = f"{API}/specs/parse"
BYTES_MAX = 1024 * 1024
LIMITS = YamlLimits(bytes_max=BYTES_MAX, nodes_max=100_000, documents_max=2_000)
_LETS_IN = "GetMode"  # requires only the read permission


def spec_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    yield web.post(PATH, pipeline.serve(_parsing()))


def _parsing() -> Handler:
    turn = asyncio.Lock()

    async def parse(context: RequestContext) -> web.StreamResponse:
        context.caller.need(_LETS_IN)
        await context.cluster.call(
            _LETS_IN, pb.GetModeRequest(), key="", metadata=context.metadata, idempotent=True
        )
        body = await read_body(context.request)
        if len(body) > BYTES_MAX:
            raise ProblemError(413, f"spec file too large: expected at most {BYTES_MAX} bytes")
        async with turn:
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
