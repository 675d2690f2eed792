"""Where the peers are and how long a request may take: a flag, a variable, ~/.persys/config.yaml, a default.

The file is shared with other command lines, so keys that are not known here are left alone.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from persys.core.duration import parse_duration
from persys.errors import SettingsError
from persys.infra.address import is_service

SCHEDULER = "127.0.0.1:8085"
AGENT = "127.0.0.1:50051"
AUTHORITY = "127.0.0.1:8888"
STATE_DIR = Path("/var/lib/persys/up")
REQUEST_TIMEOUT = timedelta(seconds=10)
WAIT_TIMEOUT = timedelta(minutes=5)


class Settings(NamedTuple):
    scheduler: str
    agent: str
    request_timeout: timedelta
    wait_timeout: timedelta
    file: Mapping[str, object]


def load(options: Namespace, environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    _check_transport(environ.get("PERSYS_TRANSPORT", ""))
    file = read_file()
    target = file.get("grpc_target") or "scheduler"
    if target not in ("scheduler", "agent"):
        raise SettingsError(f"grpc_target={target!r}: expected scheduler or agent")
    from_file = {str(target): str(file["grpc_endpoint"])} if file.get("grpc_endpoint") else {}
    scheduler = options.scheduler or environ.get("PERSYS_GRPC_ENDPOINT")
    timeout = None if options.timeout is None else duration(options.timeout, "--timeout")
    waiting = duration(options.wait, "--wait") if options.wait else timeout
    return Settings(
        scheduler=_endpoints(scheduler or from_file.get("scheduler", SCHEDULER)),
        agent=_endpoint(getattr(options, "agent", None) or from_file.get("agent", AGENT)),
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
        raise SettingsError(f"{name}={text!r}: must be more than nothing")
    return span


def _check_transport(transport: str) -> None:
    if transport.lower() == "http":
        raise SettingsError(
            "PERSYS_TRANSPORT=http: the gateway transport is not available in this version; "
            "unset it, or set it to grpc, to talk to the scheduler directly"
        )
    if transport.lower() not in ("", "grpc"):
        raise SettingsError(f"PERSYS_TRANSPORT={transport!r}: expected grpc")


def read_file() -> Mapping[str, object]:
    path = Path.home() / ".persys" / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
    import yaml  # only for those who have a file

    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as err:
        raise SettingsError(f"{path}: {err}") from err
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected a mapping of settings")
    return content


def _file_timeout(file: Mapping[str, object]) -> timedelta | None:
    seconds = file.get("rpc_timeout_seconds")
    return None if seconds is None else duration(str(seconds), "rpc_timeout_seconds")


def _endpoints(text: str) -> str:
    """Several, with commas between; one that begins with an underscore is a name that DNS knows."""
    words = [word for part in text.split(",") if (word := part.strip())]
    return ",".join(word if is_service(word) else _endpoint(word) for word in words or [text])


def _endpoint(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise SettingsError(f"{text!r} is no address; expected host:port")
    return text
