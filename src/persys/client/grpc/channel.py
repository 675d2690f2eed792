"""gRPC channels and calls: every call has a deadline, gRPC errors become PersysErrors.

gRPC is imported on first use: a client of a gateway does not need it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from persys.errors import PersysError, RefusedError, SettingsError, UnavailableError
from persys.infra.atomic_files import CertificateFiles
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX, MESSAGE_BYTES_MAX
from persys.model.role import NAMES, Role

if TYPE_CHECKING:
    import grpc

Request = TypeVar("Request")
Response = TypeVar("Response")

DEFAULT_TIMEOUT = timedelta(seconds=10)
HOSTNAME_MISMATCH = 62  # X509_V_ERR_HOSTNAME_MISMATCH of OpenSSL
THIRD_PARTY_HINT = (
    "If the server has a third-party certificate that contains its host, set PERSYS_TLS_VERIFY=host"
)


class RequestRefusedError(RefusedError):
    """The peer refused the request. `reason` is the name of a FailureReason, or empty."""

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class Trust(NamedTuple):
    """The client certificate, the trusted roots, and how server certificates are verified."""

    files: CertificateFiles
    by_host: bool = False  # verify the host name; otherwise the fixed name of the role

    def name_of(self, role: Role) -> str:
        """The name that the server certificate must have; empty: the host of its address."""
        return "" if self.by_host else f"{role}.{NAMES}"


def open_channel(target: str, role: Role, trust: Trust | None = None) -> "grpc.Channel":
    """Connects on first use. Without `trust` the connection is plain text and unverified."""
    import grpc

    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", LIST_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        # A client that waits for a restarting scheduler reconnects within a second.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Peers are on the operator's own network: ignore the HTTP proxy variables.
        ("grpc.enable_http_proxy", 0),
    ]
    if trust is None:
        return grpc.insecure_channel(target, options=options)
    if expected := trust.name_of(role):
        options.append(("grpc.ssl_target_name_override", expected))
    files = trust.files
    credentials = grpc.ssl_channel_credentials(
        _read(files.roots), _read(files.key), _read(files.certificate)
    )
    return grpc.secure_channel(target, credentials, options=options)


def call(method: Callable[..., Response], request: Request, *, timeout: timedelta) -> Response:
    with translated_errors():
        answer: Response | None = method(request, timeout=timeout.total_seconds())
    if answer is None:  # gRPC returns None for a response that it cannot parse
        raise UnavailableError("the response cannot be parsed; is this a Persys service?")
    return answer


@contextmanager
def translated_errors() -> Iterator[None]:
    """Convert gRPC errors to PersysErrors. The REST client raises PersysErrors directly."""
    try:
        yield
    except PersysError:
        raise
    except rpc_error() as err:
        from persys.wire.errors import error_from  # imported on failure only: start-up time

        # Every RpcError of a call is also a Call; the type stubs do not declare it.
        answer = cast("grpc.Call", err)
        raise error_from(answer.code(), answer.details()) from err


def rpc_error() -> "type[grpc.RpcError]":
    """Evaluated only when an exception is raised, so gRPC is not imported before."""
    import grpc

    return grpc.RpcError


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
