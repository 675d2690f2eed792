"""One channel to one peer: every call has a deadline, every refusal is one of our errors.

gRPC is imported by whoever opens a channel: a client of a gateway never needs it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from persys.errors import PersysError, RefusedError, SettingsError, UnavailableError
from persys.infra.files import CertificateFiles
from persys.infra.message_sizes import LIST_BYTES_MAX, MESSAGE_BYTES_MAX
from persys.model.role import NAMES, Role

if TYPE_CHECKING:
    import grpc

Request = TypeVar("Request")
Response = TypeVar("Response")

DEFAULT_TIMEOUT = timedelta(seconds=10)


class RequestRefusedError(RefusedError):
    """The peer understood and said no. `reason` is a name from the contract's FailureReason, or empty."""

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class Trust(NamedTuple):
    """The certificate that a client shows, and by what it knows servers."""

    files: CertificateFiles
    by_host: bool = False  # else by the fixed names of the roles, wherever they are

    def name_of(self, role: Role) -> str:
        """What a server's certificate must say; empty: the host in its address."""
        return "" if self.by_host else f"{role}.{NAMES}"


def open_channel(target: str, role: Role, trust: Trust | None = None) -> "grpc.Channel":
    """Connects on first use. Without trust anybody is spoken to, in plain text."""
    import grpc

    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", LIST_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        # A client that waits for a scheduler to come back should see it within a second.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # The peers are on the operator's own network; a proxy for the web is not meant for them.
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
    with our_errors():
        answer: Response | None = method(request, timeout=timeout.total_seconds())
    if answer is None:  # how gRPC hands out what it cannot parse
        raise UnavailableError("the answer cannot be parsed; is this a persys service?")
    return answer


@contextmanager
def our_errors() -> Iterator[None]:
    """What gRPC raises as one of ours. A gateway's client raises ours by itself."""
    try:
        yield
    except PersysError:
        raise
    except rpc_error() as err:
        from persys.wire.status import error_from  # only failures pay for it

        # Every RpcError that a call raises is also a Call, which the stubs do not say.
        answer = cast("grpc.Call", err)
        raise error_from(answer.code(), answer.details()) from err


def rpc_error() -> "type[grpc.RpcError]":
    """Looked up only when something is raised."""
    import grpc

    return grpc.RpcError


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
