"""HTTP requests as bytes, with errors below the level of the schema, which schemathesis covers.

Paths with any percent-encoding, headers with any value, bodies of another length, type or encoding than the
headers state, invalid chunks. Most parts of a request are well-formed, so that it reaches a handler.
"""

import asyncio
import gzip
import json
import ssl
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, quote_from_bytes

from fuzz.mutation import TEXTS, a_text_like, bytes_like, changed

SECONDS_MAX = 40.0
FIRST_SECONDS_MAX = (
    5.0  # a server waits for the rest of a body that is shorter than its Content-Length
)
REST_SECONDS_MAX = 0.5  # for the rest of a stream
BOMB_BYTES = 32 << 20
_LATIN = [text for text in TEXTS if text.isprintable() and text.isascii() and len(text) < 6000]
_JSON = "application/json"

HEADERS: dict[str, tuple[str, ...]] = {
    "Accept": ("text/event-stream", "*/*", "application/json;q=0", ",,,"),
    "Accept-Encoding": ("gzip", "gzip;q=0", "br, *;q=0.1", "identity"),
    "Authorization": ("Bearer x", "Bearer psk_0_0", "Basic eDp5", "Bearer " + "x" * 4000, ""),
    "Cookie": ("persys_session=a", "=", "a=b; " * 200, "persys_session=\xff"),
    "Expect": ("100-continue", "200-ok"),
    "Idempotency-Key": ("k1", "k2", "x" * 300, "", "\xe9"),
    "If-Match": ("*", '"a"', 'W/"a"', '"', '"a", "b"', "a"),
    "If-None-Match": ("*", '"a"', 'W/"a"', '"' * 50, ","),
    "Last-Event-ID": ("0", "-1", "9" * 19, "9" * 5000, "\xb2", "1.5"),
    "Origin": ("null", "https://evil.example"),
    "Range": (
        "bytes=0-1", "bytes=-1", "bytes=9-1", "bytes=0-0,1-1", "lines=1-2", "bytes=" + "9" * 30 + "-",
    ),
    "Sec-Fetch-Site": ("same-origin", "cross-site"),
    "X-HTTP-Method-Override": ("DELETE",),
    "X-Persys-Cluster-ID": ("default", "other", "", "x" * 300, "\xff\xfe", "../x"),
    "X-Persys-Session": ("s", "\xff"),
    "X-Persys-Workload-Key": ("w",),
    "X-Request-ID": ("r1", "x" * 500, "\xe9"),
    "traceparent": (f"00-{'a' * 32}-{'b' * 16}-01", "x", f"00-{'0' * 32}-{'0' * 16}-00"),
    "Upgrade": ("websocket", "h2c"),
    "Connection": ("close", "Upgrade", "keep-alive, Upgrade"),
}  # fmt: skip
KNOWN = ("canary", "fuzzed", "n1", "default", "steady")
CONTENT_TYPES = (
    _JSON, "application/json; charset=utf-16", "application/json; charset=none", "text/plain",
    "application/x-yaml",
    "multipart/form-data", "multipart/form-data; boundary=b",
    "application/x-www-form-urlencoded", "a/b/c", "",
)  # fmt: skip
QUERY_NAMES = (
    "limit",
    "cursor",
    "cluster_id",
    "frames",
    "follow",
    "tail",
    "status",
    "format",
    "since",
    "deed",
)


@dataclass(frozen=True)
class Route:
    """`body` creates a valid JSON body; None for a route without one."""

    method: str
    path: str  # with path parameters in braces
    body: Callable[[], Any] = lambda: None
    names: tuple[str, ...] = ()  # of query parameters


@dataclass(frozen=True)
class HttpResponse:
    status: int  # 0: the connection was closed without one
    text: str


def draw(random: Random, route: Route, others: Sequence[Any] = ()) -> bytes:
    """One request. `others` are documents whose parts a body may contain."""
    headers = {
        name: random.choice(values) for name, values in HEADERS.items() if random.random() < 0.1
    }
    if random.random() < 0.05:
        headers[random.choice(_LATIN) or "x"] = random.choice(_LATIN)
    body = _body(random, route, headers, others)
    method = (
        route.method
        if random.random() < 0.95
        else random.choice(("HEAD", "PATCH", "TRACE", "X" * 40, "get"))
    )
    target = _path(random, route) + _query(random, route)
    head = f"{method} {target} HTTP/1.1\r\nHost: {random.choice(('127.0.0.1', '127.0.0.1', 'x', ''))}\r\n"
    if "Connection" not in headers:
        headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    complete = (head + lines + "\r\n").encode("latin-1", "replace") + body
    return bytes_like(random, complete) if random.random() < 0.03 else complete


def _path(random: Random, route: Route) -> str:
    # Objects that the fuzzer checks at the end are only read.
    known = KNOWN if route.method in ("GET", "HEAD") else ("fuzzed", "default")
    parts = [
        _segment(random, known) if part.startswith("{") else part for part in route.path.split("/")
    ]
    path = "/".join(parts)
    match random.randrange(30):
        case 0:
            return path + "/"
        case 1:
            return "/" + path
        case 2:
            return path.replace("/", "/./", 1) + "/.."
        case 3:
            return f"http://127.0.0.1{path}"
        case 4:
            return path + "#x"
        case _:
            return path


def _segment(random: Random, known: tuple[str, ...]) -> str:
    match random.randrange(6):
        case 0 | 1:
            return random.choice(known)
        case 2:
            return quote(random.choice(TEXTS).encode("utf-8", "surrogatepass")[:3000], safe="")
        case 3:
            return random.choice(
                ("%", "%zz", "%2", "%ff", "%00", "%2F%2e%2e", "%c0%af", "%ed%a0%80", "a%0d%0ab")
            )
        case 4:
            return quote_from_bytes(random.randbytes(random.randint(1, 8)), safe="")
        case _:
            return "x" * random.choice((1, 64, 300, 4000))


def _query(random: Random, route: Route) -> str:
    if random.random() < 0.5:
        return ""
    pairs = []
    for _ in range(random.choice((1, 1, 2, 5))):
        name = random.choice((*route.names, *QUERY_NAMES, "x"))
        value = quote(random.choice(TEXTS).encode("utf-8", "surrogatepass")[:3000], safe="")
        pairs.append(
            random.choice((f"{name}={value}", f"{name}={value}", name, f"{name}=%ff", f"={value}"))
        )
    return "?" + random.choice(("&", "&", ";")).join(pairs)


def _body(random: Random, route: Route, headers: dict[str, str], others: Sequence[Any]) -> bytes:
    valid = route.body()
    if valid is None and random.random() < 0.7:
        return b""
    headers["Content-Type"] = _JSON if random.random() < 0.8 else random.choice(CONTENT_TYPES)
    document = valid if random.random() < 0.1 else changed(random, valid or {"a": 1}, others)
    body = json.dumps(document, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        body = random.choice(
            (
                bytes_like(random, body),
                a_text_like(random, body.decode("latin-1")).encode(),
                b"[" * 50_000,
            )
        )
    if random.random() < 0.1:
        body = _encoded(random, body, headers)
    return _framed(random, body, headers)


def _encoded(random: Random, body: bytes, headers: dict[str, str]) -> bytes:
    kind = random.choice(("gzip", "deflate", "br", "zstd", "gzip, gzip", "none"))
    headers["Content-Encoding"] = kind
    match random.randrange(4):
        case 0:
            return body  # does not match the header
        case 1:
            bomb = b'{"a":"' + b" " * BOMB_BYTES + b'"}'
            return gzip.compress(bomb, 9) if kind == "gzip" else zlib.compress(bomb, 9)
        case 2:
            return bytes_like(random, gzip.compress(body))
        case _:
            return gzip.compress(body) if kind == "gzip" else zlib.compress(body)


def _framed(random: Random, body: bytes, headers: dict[str, str]) -> bytes:
    match random.randrange(12):
        case 0:
            headers["Content-Length"] = random.choice(
                ("-1", "x", "9" * 30, "0", "1", "", f"{len(body)}, 1")
            )
            return body
        case 1 | 2:
            headers["Transfer-Encoding"] = random.choice(
                ("chunked", "chunked", "gzip, chunked", "x")
            )
            half = len(body) // 2
            chunks = [body[:half], body[half:]]
            framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
            end = random.choice(
                (b"0\r\n\r\n", b"0\r\n\r\n", b"zz\r\n", b"ffffffffffffffff\r\nx", b"-1\r\n\r\n")
            )
            return framed + end
        case _:
            headers["Content-Length"] = str(len(body))
            return body


async def exchange(
    port: int, request: bytes, context: ssl.SSLContext | None = None
) -> HttpResponse:
    """Send a request and read its response until the end or a timeout."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            name = "127.0.0.1" if context is not None else None
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname=name
            )
    except OSError as err:
        raise AssertionError(f"the port does not answer: {err}") from err
    response = b""
    try:
        writer.write(request)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await writer.drain()
            async with asyncio.timeout(FIRST_SECONDS_MAX):
                response = await reader.read(65536)
                while _is_provisional(response) and (more := await reader.read(65536)):
                    response += more
            async with asyncio.timeout(REST_SECONDS_MAX):
                while len(response) < 1 << 20 and (more := await reader.read(65536)):
                    response += more
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the server may close a connection after an invalid request
    finally:
        writer.close()
    return _parsed(response)


def _is_provisional(answer: bytes) -> bool:
    return answer.startswith(b"HTTP/1.1 100") and answer.count(b"\r\n\r\n") < 2


def _parsed(answer: bytes) -> HttpResponse:
    text = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").decode("utf-8", "replace")
    first = text.partition("\r\n")[0].split(" ")
    is_status = len(first) > 1 and first[0].startswith("HTTP/1.") and first[1].isdecimal()
    return HttpResponse(int(first[1]) if is_status else 0, text[:4000])
