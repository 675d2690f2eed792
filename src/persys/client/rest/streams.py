"""Streaming calls of the REST client: events, logs, snapshots, images, exec, ports and files, as iterators.

Each can be cancelled from another thread with cancel(), and raises PersysErrors. A gateway sends a
keep-alive at least every 15 seconds, so a longer silence means that it is gone.
"""

import http.client
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from persys.client.http import LINE_BYTES_MAX, Response
from persys.client.rest.errors import error_from_problem, parse_problem
from persys.errors import UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import Route

if TYPE_CHECKING:
    from persys.client.rest.stub import RestStub

SILENCE_SECONDS = 45.0
# Until the first byte: the gateway waits for the scheduler, which waits for a node.
_FIRST_SECONDS = 30.0
_PART_BYTES = 64 * 1024
_OK = 200
NDJSON = "application/x-ndjson"


class Stream:
    """Iterates over the messages of a response."""

    def __init__(
        self, open_answer: Callable[[], Response], read: Callable[[Response], Iterator[Any]]
    ):
        self._answer: Response | None = None
        self._cancelled = False
        self._messages = self._read(open_answer, read)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._messages)

    def cancel(self) -> None:
        self._cancelled = True
        if self._answer is not None:
            self._answer.close()

    def _read(
        self, open_answer: Callable[[], Response], read: Callable[[Response], Iterator[Any]]
    ) -> Iterator[Any]:
        answer = self._answer = open_answer()
        try:
            if answer.status != _OK:
                raise error_from_problem(
                    answer.status, parse_problem(answer.read()), answer.headers.get("Retry-After")
                )
            answer.wait_at_most(SILENCE_SECONDS)
            yield from read(answer)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as err:
            # http.client raises ValueError or AttributeError when another thread closes the connection.
            if not self._cancelled:
                raise UnavailableError(f"the connection to the gateway was lost: {err}") from err
        finally:
            answer.close()


def events(stub: "RestStub", route: Route) -> Callable[..., Stream]:
    def method(request: pb.WatchEventsRequest, *, timeout: float | None = None) -> Stream:
        copied = pb.WatchEventsRequest()
        copied.CopyFrom(request)
        copied.ClearField("bookmarks")  # a gateway always sends them
        return _get(stub, stub.url(route, copied), "text/event-stream", _server_sent)

    return method


def text(stub: "RestStub", route: Route) -> Callable[..., Stream]:
    logs = route.rpc == "StreamLogs"

    def method(request: Message, *, timeout: float | None = None) -> Stream:
        read = (lambda answer: _lines(answer, pb.LogChunk)) if logs else _chunks
        form = NDJSON if logs else "application/octet-stream"
        return _get(stub, stub.url(route, request), form, read)

    return method


def upload(stub: "RestStub", route: Route) -> Callable[..., Any]:
    return _add_image(stub, route) if route.rpc == "AddImage" else _restore(stub, route)


def socket(stub: "RestStub", route: Route) -> Callable[..., Iterator[Message]]:
    def method(inputs: Iterator[Any], **_: object) -> Iterator[Message]:
        from persys.client.rest.exec import run  # imported on use: start-up time
        from persys.client.rest.stub import response_class

        return run(stub, route, inputs, response_class(route.rpc))

    return method


def _get(
    stub: "RestStub", path: str, accept: str, read: Callable[[Response], Iterator[Any]]
) -> Stream:
    headers = {"Accept": accept}
    return Stream(lambda: stub.request("GET", path, headers=headers, seconds=_FIRST_SECONDS), read)


def _restore(stub: "RestStub", route: Route) -> Callable[..., Message]:
    from persys.client.rest.stub import parse_response

    def method(chunks: Iterable[pb.SnapshotChunk], *, timeout: float | None = None) -> Message:
        answer = stub.request(
            route.method,
            stub.url(route, pb.SnapshotChunk()),
            body=(chunk.data for chunk in chunks if chunk.data),
            headers={"Content-Type": "application/octet-stream"},
            seconds=timeout,
        )
        return parse_response(answer, route.rpc)

    return method


def _add_image(stub: "RestStub", route: Route) -> Callable[..., Iterator[pb.ImageProgress]]:
    def method(requests: Iterator[pb.AddImageRequest], **_: object) -> Iterator[pb.ImageProgress]:
        start = next(requests).start
        # The sender waits for a first response before it sends data; over REST the body comes first.
        yield pb.ImageProgress()
        body = (part.data for part in requests if part.data)
        yield from Stream(
            lambda: stub.request(
                route.method,
                stub.url(route, start),
                body=body,
                headers={"Accept": NDJSON, "Content-Type": "application/octet-stream"},
                seconds=SILENCE_SECONDS,
            ),
            lambda answer: _lines(answer, pb.ImageProgress),
        )

    return method


def _chunks(answer: Response) -> Iterator[pb.SnapshotChunk]:
    while data := answer.response.read1(_PART_BYTES):
        yield pb.SnapshotChunk(data=data)


def _lines(answer: Response, kind: type[Message]) -> Iterator[Message]:
    """One message per line. An empty one is a keep-alive; a problem is the last line."""
    while line := answer.read_line():
        plain = json.loads(line)
        if "problem" in plain and isinstance(plain["problem"], dict):
            raise error_from_problem(int(plain["problem"].get("status", 503)), plain["problem"])
        if plain:
            yield ParseDict(plain, kind(), ignore_unknown_fields=True)


def _server_sent(answer: Response) -> Iterator[pb.EventView]:
    kind, data = "", ""
    while line := answer.read_line():
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data += value.removeprefix(" ")
            if len(data) > LINE_BYTES_MAX:
                raise UnavailableError(f"an event is longer than {LINE_BYTES_MAX} bytes")
        elif not name and not value and data:
            plain = json.loads(data)
            if kind == "problem":
                raise error_from_problem(int(plain.get("status", 503)), plain)
            yield ParseDict(plain, pb.EventView(), ignore_unknown_fields=True)
            kind, data = "", ""
