"""Spec files as people write them, turned into the requests that they mean.

A browser has no YAML; and what persysctl takes the dashboard takes too, because it is read by the same code.
Nothing is asked of a scheduler here.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from google.protobuf.json_format import MessageToDict

from persys.wire.rest import API
from persys.wire.specfile import read_spec_file
from persys.wire.strict import SpecFileError

PATH = f"{API}/specs/parse"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def parse(request: web.Request) -> web.StreamResponse:
    try:
        documents = read_spec_file((await request.read()).decode())
    except UnicodeDecodeError:
        return _refusal(SpecFileError("file", "not UTF-8 text"))
    except SpecFileError as err:
        return _refusal(err)
    return web.json_response(
        {
            "workloads": [
                MessageToDict(document.request, preserving_proto_field_name=True)
                for document in documents
            ],
            "lines": [document.line for document in documents],
        }
    )


def _refusal(err: SpecFileError) -> web.Response:
    """RFC 9457, with the place in the file."""
    return web.json_response(
        {
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": str(err),
            "field": err.field,
            "line": err.line,
        },
        status=400,
        content_type="application/problem+json",
    )
