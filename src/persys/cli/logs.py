"""What a workload writes, each output to its own: standard error stays standard error."""

import gc
import sys
from argparse import Namespace
from contextlib import suppress

from persys.cli.exits import Exit, UsageError
from persys.cli.peers import scheduler
from persys.cli.settings import duration
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import LogChunk


def show(options: Namespace) -> Exit:
    if options.follow and options.previous:
        raise UsageError("what is over cannot be followed: --previous or --follow, not both")
    if options.tail < 0:
        raise UsageError(f"--tail {options.tail}: expected 0 for all, or more")
    since = None
    if options.since is not None:
        since = SystemClock().now() - duration(options.since, name="--since")
    gc.enable()
    with scheduler(options) as client:
        chunks = client.stream_logs(
            options.id,
            service=options.service,
            follow=options.follow,
            since=since,
            tail=options.tail,
            previous=options.previous,
            timestamps=options.timestamps,
        )
        lines = _Lines()
        with suppress(KeyboardInterrupt):  # the usual way to end it
            for chunk in chunks:
                stream = sys.stderr if chunk.stream == "stderr" else sys.stdout
                stream.buffer.write(lines.shown(chunk))
                stream.flush()
    return Exit.OK


class _Lines:
    """Lines of a stack begin with their service, also when a line comes in several pieces."""

    def __init__(self) -> None:
        self._unfinished: set[tuple[str, str]] = set()

    def shown(self, chunk: LogChunk) -> bytes:
        if not chunk.service or not chunk.data:
            return chunk.data
        prefix = f"{chunk.service} | ".encode()
        key = (chunk.service, chunk.stream)
        text = b"".join(prefix + line for line in chunk.data.splitlines(keepends=True))
        if key in self._unfinished:
            text = text.removeprefix(prefix)
        (self._unfinished.discard if text.endswith(b"\n") else self._unfinished.add)(key)
        return text
