"""The texts that -f names: files, directories, URLs and standard input; the variables of --env-file.

A directory means its .yaml, .yml and .json files, sorted by name, except JSON schemas (.schema.json); with
--recursive also those below it, except in hidden directories. A URL is fetched within a limit of size and
time.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.framework.exit_codes import UsageError
from persys.errors import UnavailableError
from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from urllib.parse import SplitResult

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
SCHEMA_SUFFIX = ".schema.json"
URL_BYTES_MAX = 16 * 1024 * 1024
URL_SECONDS_MAX = 30.0
_STDIN_SHOWN = "standard input"
_REDIRECTS_MAX = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_OK = 200
_PART_BYTES = 64 * 1024
_VARIABLE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")


class Source(NamedTuple):
    """One text. `directory` is the name of the directory that contains it."""

    shown: str
    text: str
    directory: str = ""
    is_generated: bool = False  # the user did not write it: errors name no line


def read_sources(names: Sequence[str], *, recursive: bool) -> Iterator[Source]:
    """Raises UsageError for what cannot be read."""
    if names.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    for name in names:
        if name == STDIN:
            yield Source(_STDIN_SHOWN, _stdin())
        elif name.startswith(("http://", "https://")):
            yield fetch(name)
        else:
            for path in _files(name, recursive=recursive):
                yield Source(path, _text(path), Path(path).resolve().parent.name)


def read_variables(name: str) -> dict[str, str]:
    """The variables of a file with lines NAME=VALUE, as Docker Compose reads it."""
    found: dict[str, str] = {}
    for number, line in enumerate(_text(name).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        variable = _VARIABLE.fullmatch(stripped)
        if variable is None:
            raise UsageError(f"{name}:{number}: invalid line {line!r}: expected NAME=VALUE")
        found[variable["name"]] = _unquoted(variable["value"].strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {_STDIN_SHOWN}: it is not UTF-8 text") from err


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as err:
        raise UsageError(f"cannot read {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {path}: it is not UTF-8 text") from err


def _files(name: str, *, recursive: bool) -> list[str]:
    path = Path(name)
    if not path.is_dir():
        return [name]
    if recursive:
        found = list(_below(path))
    else:
        found = [str(each) for each in path.iterdir() if _is_spec(each.name) and each.is_file()]
    if not found:
        hint = "" if recursive else "; --recursive includes the directories in it"
        raise UsageError(f"{name} has no {', '.join(SUFFIXES)} files{hint}")
    return sorted(found)


def _below(top: Path) -> Iterator[str]:
    for directory, inner, names in os.walk(top):
        inner[:] = [each for each in inner if not each.startswith(".")]
        for name in names:
            if _is_spec(name):
                yield str(Path(directory, name))


def _is_spec(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.endswith(SCHEMA_SUFFIX)


def fetch(url: str, *, bytes_max: int = URL_BYTES_MAX, seconds: float = URL_SECONDS_MAX) -> Source:
    """The text at a URL. Redirects are followed, but never from https to http."""
    from urllib.parse import urljoin, urlsplit  # only for URLs: start-up time

    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    at = url
    for _ in range(_REDIRECTS_MAX + 1):
        status, location, body = _get(urlsplit(at), url, clock, deadline, bytes_max)
        if status not in _REDIRECTS or not location:
            break
        after = urljoin(at, location)
        if not after.startswith(
            "https://" if at.startswith("https://") else ("http://", "https://")
        ):
            raise UsageError(f"cannot read {url}: it redirects to {after}")
        at = after
    else:
        raise UsageError(f"cannot read {url}: more than {_REDIRECTS_MAX} redirects")
    if status != _OK:
        raise UsageError(f"cannot read {url}: status {status}")
    try:
        return Source(url, body.decode(), Path(urlsplit(at).path).parent.name)
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {url}: it is not UTF-8 text") from err


def _get(
    at: "SplitResult", url: str, clock: SystemClock, deadline: float, bytes_max: int
) -> tuple[int, str, bytes]:
    """The status, the address of a redirect, and the body of one request."""
    from persys.client.http import (
        HttpClient,
        Server,
        client_context,
    )  # only for URLs: start-up time

    def remaining() -> float:
        left = deadline - clock.monotonic()
        if left <= 0:
            raise UnavailableError(f"cannot read {url}: it takes too long")
        return left

    try:
        host, port = at.hostname or "", at.port or _PORTS[at.scheme]
    except ValueError as err:
        raise UsageError(f"invalid URL {url!r}: {err}") from err
    if not host:
        raise UsageError(f"invalid URL {url!r}: expected https://HOST/PATH")
    if "@" in at.netloc:
        raise UsageError(f"invalid URL of {host}: expected https://HOST/PATH without credentials")
    tls = client_context(None) if at.scheme == "https" else None
    client = HttpClient(
        Server(host, port, tls, host),
        lambda err: UnavailableError(f"cannot read {url}: {err}"),
        body_bytes_max=bytes_max,
    )
    path = (at.path or "/") + (f"?{at.query}" if at.query else "")
    headers = {"Host": at.netloc.rpartition("@")[2], "Accept": "*/*", "Connection": "close"}
    response = client.request("GET", path, headers=headers, seconds=remaining())
    try:
        body = bytearray()
        while True:
            response.wait_at_most(remaining())
            part = response.response.read1(_PART_BYTES)
            body += part
            if len(body) > bytes_max:
                raise UsageError(f"cannot read {url}: larger than {bytes_max} bytes")
            if not part:
                return response.status, response.headers.get("Location", ""), bytes(body)
    except OSError as err:
        raise UnavailableError(f"cannot read {url}: {err}") from err
    finally:
        response.close()
