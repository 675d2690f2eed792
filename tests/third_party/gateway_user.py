"""A user who knows only the REST contract, and repeats a request that a gateway did not answer."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from google.protobuf import json_format

from e2e.waiting import eventually
from third_party.contract import control
from third_party.user import User

Request = Callable[..., tuple[int, Any]]
ROUTES = {
    "ApplyWorkload": ("POST", "/workloads/schedule"),
    "DeleteWorkload": ("DELETE", "/workloads/{workload_id}"),
    "RetryWorkload": ("POST", "/workloads/{workload_id}/retry"),
    "GetWorkload": ("GET", "/workloads/{workload_id}"),
    "ListNodes": ("GET", "/nodes"),
    "GetNode": ("GET", "/nodes/{node_id}"),
}
# The gateway has no connection to a scheduler yet.
TRY_LATER = (502, 503, 504)


class NotFoundError(Exception):
    """The workload does not exist."""


class GatewayUser(User):
    def __init__(self, address: str, tls: dict[str, str] | None = None) -> None:
        self.ask = requester(address, tls or {})
        self.repeated = 0

    def close(self) -> None:
        """Each request has its own connection."""

    def delete(self, name: str) -> None:
        """A repeated request may find that the workload is deleted already."""
        before = self.repeated
        try:
            response = self._call("DeleteWorkload", control.DeleteWorkloadRequest(workload_id=name))
        except NotFoundError:
            assert self.repeated > before
        else:
            text = response.error_message
            assert response.success or ("not found" in text and self.repeated > before), text

    def workload(self, name: str) -> Any:
        try:
            return self._call("GetWorkload", control.GetWorkloadRequest(workload_id=name)).workload
        except NotFoundError:
            return None

    def _call(self, method: str, request: Any) -> Any:
        """Repeats the request until the gateway answers, like a user whose gateway is restarting."""
        values = json_format.MessageToDict(request, preserving_proto_field_name=True)
        verb, path = ROUTES[method]
        path = path.format_map(values)
        body = values if method == "ApplyWorkload" else None
        responses: list[Any] = []

        def is_answered() -> bool:
            try:
                code, reply = self.ask(verb, path, body)
            except (OSError, HTTPException) as err:
                code, reply = 503, {"error": str(err)}
            responses[:] = [reply]
            if "not found" in reply.get("error", ""):
                raise NotFoundError(path)
            self.repeated += code in TRY_LATER
            assert code == 200 or code in TRY_LATER, f"{verb} {path}: {code} {reply}"
            return code == 200

        eventually(is_answered, lambda: f"{verb} {path} is answered: {responses}")
        response = getattr(control, f"{method}Response")()
        return json_format.ParseDict(responses[0], response, ignore_unknown_fields=True)


def requester(address: str, tls: dict[str, str]) -> Request:
    """Sends requests like a command-line client with this certificate, or in plain text."""
    context: ssl.SSLContext | None = None
    if tls:
        context = ssl.create_default_context(cafile=tls["ca"])
        context.load_cert_chain(tls["cert"], tls["key"])
    scheme = "https" if tls else "http"

    def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"} if data else {}
        request = urllib.request.Request(
            f"{scheme}://{address}{path}", data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as err:
            return err.code, json.loads(err.read())

    return ask
