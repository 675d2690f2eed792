"""Answers of a gateway are limited in size."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from persys.client import SchedulerClient
from persys.client.http import LINE_BYTES_MAX
from persys.client.rest.connection import Gateway
from persys.errors import UnavailableError

PART = b"x" * (1024 * 1024)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def serving(head: bytes, *, parts: int) -> Iterator[str]:
    """A server that answers with this head and this many chunks."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                with client, suppress(OSError):
                    client.recv(65536)
                    client.sendall(head + b"\r\n")
                    for _ in range(parts):
                        client.sendall(PART)

    Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def test_an_answer_with_too_large_a_length_is_not_read() -> None:
    head = HEAD + b"Content-Length: 1000000000000\r\n"
    with (
        serving(head, parts=1) as url,
        SchedulerClient(Gateway(url)) as client,
        pytest.raises(UnavailableError, match="is larger than"),
    ):
        client.list_nodes()


@pytest.mark.parametrize("stream", ["logs", "events"])
def test_a_line_without_an_end_is_refused(stream: str) -> None:
    parts = LINE_BYTES_MAX // len(PART) + 2
    head = HEAD + b"Connection: close\r\n"
    with serving(head, parts=parts) as url, SchedulerClient(Gateway(url)) as client:
        is_log = stream == "logs"
        messages = client.stream_logs("web") if is_log else client.watch_events(after=0)
        with pytest.raises(UnavailableError, match="is longer than"):
            list(messages)
