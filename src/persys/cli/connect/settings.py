"""Addresses and timeouts of persysctl, in this order: flag, variable, ~/.persys/config.yaml, default.

Other CLIs use the same file, so unknown keys are ignored. The first of flag, variable and context that names
a gateway or a scheduler selects which of the two is used.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from persys.cli.connect.context_file import read_contexts
from persys.core.duration import parse_duration
from persys.errors import NotFoundError, SettingsError
from persys.infra.net.address import is_service

SCHEDULER = "127.0.0.1:8085"
AGENT = "127.0.0.1:50051"
AUTHORITY = "127.0.0.1:8888"
GATEWAY = "https://localhost:8551"
STATE_DIR = Path("/var/lib/persys/up")
REQUEST_TIMEOUT = timedelta(seconds=10)
WAIT_TIMEOUT = timedelta(minutes=5)


class Transport(StrEnum):
    GRPC = "grpc"  # to a scheduler
    HTTP = "http"  # to a gateway


class Settings(NamedTuple):
    transport: Transport
    scheduler: str
    gateway: str
    cluster: str  # behind a gateway; empty: the default cluster of the gateway
    token: str
    agent: str
    request_timeout: timedelta
    wait_timeout: timedelta
    file: Mapping[str, object]


def load_settings(options: Namespace, environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    file = context_settings(options, environ)
    target = file.get("grpc_target") or "scheduler"
    if target not in ("scheduler", "agent"):
        raise SettingsError(f"invalid grpc_target {target!r}: expected scheduler or agent")
    from_file = {str(target): str(file["grpc_endpoint"])} if file.get("grpc_endpoint") else {}
    scheduler = options.scheduler or environ.get("PERSYS_GRPC_ENDPOINT")
    timeout = None if options.timeout is None else duration(options.timeout, "--timeout")
    waiting = duration(options.wait, "--wait") if options.wait else timeout
    api = getattr(options, "api", None) or environ.get("PERSYS_API_ENDPOINT")
    cluster = getattr(options, "cluster", None) or environ.get("PERSYS_CLUSTER")
    return Settings(
        transport=_transport(options, environ, file),
        scheduler=_endpoints(scheduler or from_file.get("scheduler", SCHEDULER)),
        gateway=_url(str(api or file.get("api_endpoint") or GATEWAY)),
        cluster=str(cluster or file.get("cluster") or ""),
        token=_token(environ, file),
        agent=_endpoint(
            getattr(options, "agent", None)
            or environ.get("PERSYS_AGENT_ADDR")
            or str(file.get("agent_endpoint") or "")
            or from_file.get("agent", AGENT)
        ),
        request_timeout=timeout or _file_timeout(file) or REQUEST_TIMEOUT,
        wait_timeout=WAIT_TIMEOUT if waiting is None else waiting,
        file=file,
    )


def duration(text: str, name: str) -> timedelta:
    try:
        span = parse_duration(text)
    except ValueError as err:
        raise SettingsError(f"{name}={text!r}: {err}") from err
    if not span:
        raise SettingsError(f"invalid {name} {text!r}: expected more than 0, for example 30s")
    return span


def context_settings(
    options: Namespace | None = None, environ: Mapping[str, str] | None = None
) -> Mapping[str, object]:
    """The keys of the selected context. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    file = read_contexts()
    named = getattr(options, "context", None) or environ.get("PERSYS_CONTEXT") or file.current
    try:
        return file.keys_of(named)
    except NotFoundError as err:
        raise SettingsError(str(err)) from err


def _transport(
    options: Namespace, environ: Mapping[str, str], file: Mapping[str, object]
) -> Transport:
    if getattr(options, "api", None) and options.scheduler:
        raise SettingsError(
            "--api and --scheduler cannot be combined: name a gateway or a scheduler"
        )
    if value := environ.get("PERSYS_TRANSPORT", ""):
        _parse_transport(value, "PERSYS_TRANSPORT")
    return (
        _implied(getattr(options, "api", None), options.scheduler)
        or (Transport(value.lower()) if value else None)
        or _implied(environ.get("PERSYS_API_ENDPOINT"), environ.get("PERSYS_GRPC_ENDPOINT"))
        or (
            _parse_transport(str(file["transport"]), "transport") if file.get("transport") else None
        )
        or _implied(file.get("api_endpoint"), file.get("grpc_endpoint"))
        or Transport.GRPC
    )


def _implied(gateway: object, scheduler: object) -> Transport | None:
    """The transport, if exactly one of the two is set."""
    if bool(gateway) is bool(scheduler):
        return None
    return Transport.HTTP if gateway else Transport.GRPC


def _parse_transport(value: str, name: str) -> Transport:
    try:
        return Transport(value.lower())
    except ValueError as err:
        raise SettingsError(f"invalid {name} {value!r}: expected grpc or http") from err


def _token(environ: Mapping[str, str], file: Mapping[str, object]) -> str:
    if token := environ.get("PERSYS_TOKEN"):
        return token
    if not (named := environ.get("PERSYS_TOKEN_FILE") or file.get("token_file")):
        return str(file.get("token") or "")
    path = Path(str(named)).expanduser()
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise SettingsError(f"{path}: {getattr(err, 'strerror', '') or err}") from err


def _url(text: str) -> str:
    scheme, _, rest = text.rpartition("://")
    if scheme not in ("", "http", "https") or not rest.strip("/"):
        raise SettingsError(f"invalid gateway URL {text!r}: expected https://host:port")
    return f"{scheme or 'https'}://{rest.rstrip('/')}"


def _file_timeout(file: Mapping[str, object]) -> timedelta | None:
    seconds = file.get("rpc_timeout_seconds")
    return None if seconds is None else duration(str(seconds), "rpc_timeout_seconds")


def _endpoints(text: str) -> str:
    """Addresses separated by commas; a word that starts with an underscore is the name of an SRV record."""
    words = [word for part in text.split(",") if (word := part.strip())]
    return ",".join(word if is_service(word) else _endpoint(word) for word in words or [text])


def _endpoint(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise SettingsError(f"invalid address {text!r}: expected host:port")
    return text
