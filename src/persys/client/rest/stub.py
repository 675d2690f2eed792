"""The scheduler's API over the REST API of a gateway: the methods of the gRPC stub, from the route table.

It can be used in place of the gRPC stub, with two differences. A refusal arrives as an HTTP error that
contains the response message of the scheduler, and that message is returned. Errors are PersysErrors, not
gRPC errors.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from google.protobuf.json_format import MessageToDict, MessageToJson, Parse, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from persys.client.http import Body, HttpClient, Response
from persys.client.rest.connection import Gateway, open_gateway
from persys.client.rest.errors import UNKNOWN_ROUTE_STATUSES, error_from_problem, parse_problem
from persys.errors import InvalidError, RefusedError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.metadata_keys import DATA_AGE_MS, HOME, MODE
from persys.wire.rest.routes import API, CONTRACT_ROUTES, NOT_SERVED, ROUTES, Form, Route

if TYPE_CHECKING:
    from persys.client.grpc.interceptors import OnMode
    from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

_SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
_OK = 200
_JSON = "application/json"

Method = Callable[..., Any]


class RestStub:
    """Safe for use by several threads; a single stream is not."""

    def __init__(self, gateway: Gateway, on_mode: "OnMode | None" = None) -> None:
        """Raises SettingsError for an invalid URL or unusable files."""
        self._gateway = gateway
        self._http = open_gateway(gateway)
        self._on_mode = on_mode
        self._cluster = f"/clusters/{quote(gateway.cluster, safe='')}" if gateway.cluster else ""
        self._headers = {"Accept": _JSON}
        if gateway.token and gateway.url.startswith("https:"):  # never sent in plain text
            self._headers["Authorization"] = f"Bearer {gateway.token}"
        if gateway.home and gateway.url.startswith("http:"):
            self._headers[HOME] = gateway.home
        for route in ROUTES:
            setattr(self, route.rpc, self._method(route))
        for rpc in NOT_SERVED:
            setattr(self, rpc, _not_served)

    def as_grpc(self) -> "AgentControlStub":
        return cast("AgentControlStub", self)

    def close(self) -> None:
        self._http.close()

    def fetch(self, path: str, *, in_cluster: bool, timeout: timedelta) -> bytes:
        """GET a route of the gateway itself, such as /gitops; `in_cluster`: for the selected cluster."""
        headers = {}
        if in_cluster and (cluster := self._gateway.cluster):
            headers["X-Persys-Cluster-ID"] = cluster
        answer = self.request("GET", API + path, headers=headers, seconds=timeout.total_seconds())
        content = answer.read()
        if answer.status != _OK:
            raise error_from_problem(
                answer.status, parse_problem(content), answer.headers.get("Retry-After")
            )
        return content

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Body = None,
        headers: dict[str, str],
        seconds: float | None,
    ) -> Response:
        """Send a request. The Idempotency-Key makes a change safe to repeat after a broken connection."""
        if method != "GET":
            headers = {"Idempotency-Key": os.urandom(16).hex(), **headers}
        return self._http.request(
            method,
            self._gateway.base_path + path,
            body=body,
            headers={**self._headers, **headers},
            seconds=seconds,
            again=body is None or isinstance(body, bytes),
        )

    def url(self, route: Route, request: Message) -> str:
        """Path and query of a request. Raises InvalidError if a path field is empty."""
        return API + self._cluster + _path(route, request)

    def socket_path(self, route: Route, request: Message) -> str:
        """The path of a WebSocket, with the base path of the gateway."""
        return self._gateway.base_path + self.url(route, request)

    @property
    def headers(self) -> dict[str, str]:
        return self._headers

    @property
    def http(self) -> HttpClient:
        return self._http

    def _method(self, route: Route) -> Method:
        if route.form is Form.UNARY:
            return self._unary(route)
        from persys.client.rest import streams

        return {
            Form.EVENTS: streams.events,
            Form.TEXT: streams.text,
            Form.UPLOAD: streams.upload,
            Form.SOCKET: streams.socket,
        }[route.form](self, route)

    def _unary(self, route: Route) -> Method:
        answer_type = response_class(route.rpc)

        def method(request: Message, *, timeout: float | None = None) -> Message:
            answer = self._request_route(route, request, API, timeout)
            content = answer.read()
            if answer.status in UNKNOWN_ROUTE_STATUSES and not parse_problem(content):
                return self._call_older_gateway(route, request, answer_type, timeout)
            self._report_mode(answer)
            return _parse(answer, content, answer_type)

        return method

    def _request_route(
        self, route: Route, request: Message, prefix: str, timeout: float | None
    ) -> Response:
        body = MessageToJson(request, preserving_proto_field_name=True, indent=None).encode()
        return self.request(
            route.method,
            prefix + self._cluster + _path(route, request),
            body=body if route.body else None,
            headers={"Content-Type": _JSON} if route.body else {},
            seconds=timeout,
        )

    def _call_older_gateway(
        self, route: Route, request: Message, answer_type: type[Message], timeout: float | None
    ) -> Message:
        """Use the routes of an older gateway. Raises RefusedError if it has none for this RPC."""
        older = next((each for each in CONTRACT_ROUTES if each.rpc == route.rpc), None)
        if older is None:
            raise RefusedError("not supported by this gateway version")
        answer = self._request_route(older, request, "", timeout)
        return _parse(answer, answer.read(), answer_type)

    def _report_mode(self, answer: Response) -> None:
        if self._on_mode is not None and (mode := answer.headers.get(MODE)):
            age_ms = int(answer.headers.get(DATA_AGE_MS) or 0)
            self._on_mode(mode, timedelta(milliseconds=age_ms))


def response_class(rpc: str) -> type[Message]:
    found: type[Message] = GetMessageClass(_SERVICE.methods_by_name[rpc].output_type)
    return found


def parse_response(answer: Response, rpc: str) -> Message:
    return _parse(answer, answer.read(), response_class(rpc))


def _parse(answer: Response, content: bytes, answer_type: type[Message]) -> Message:
    """The response message, also of a refusal. Raises PersysError for any other error."""
    if answer.status == _OK:
        return Parse(content, answer_type(), ignore_unknown_fields=True)
    problem = parse_problem(content)
    if "answer" in problem:
        return ParseDict(problem["answer"], answer_type(), ignore_unknown_fields=True)
    raise error_from_problem(answer.status, problem, answer.headers.get("Retry-After"))


def _path(route: Route, request: Message) -> str:
    plain = MessageToDict(request, preserving_proto_field_name=True)
    path = route.path
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        if not (value := plain.pop(name, "")):
            raise InvalidError(name, "required for requests to a gateway")
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    if route.body or not plain:
        return path
    return f"{path}?{urlencode({name: _query_value(value) for name, value in plain.items()}, doseq=True)}"


def _query_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _not_served(request: object, **_: object) -> Iterable[Message] | Iterator[Message]:
    raise RefusedError("not supported by gateways: only agents call this, on the scheduler")
