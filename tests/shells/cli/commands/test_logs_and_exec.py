"""persysctl logs, exec and console; with a real terminal where that matters."""

# ruff: noqa: N802  # the contract names the methods

from __future__ import annotations

import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc
from shells.cli.gateway import gateway
from shells.cli.terminal import COMMAND, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Process = Callable[..., subprocess.CompletedProcess[bytes]]


class LogsScheduler(control_pb2_grpc.AgentControlServicer):
    """A scheduler that simulates one workload."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}  # by which it is reached
        self.requests: list[control_pb2.LogsRequest] = []
        self.started: list[control_pb2.ExecStart] = []
        self.sizes: list[tuple[int, int]] = []
        self.left = False

    def StreamLogs(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        if request.workload_id == "nobody":
            context.abort(grpc.StatusCode.NOT_FOUND, "workload not found: nobody")
        if request.workload_id == "hostile-error":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "node says \x1b]0;title\x07")
        if request.workload_id == "hostile":
            yield control_pb2.LogChunk(data=b"\x1b[31mred\x1b[0m \x1b[", stream="stdout")
            yield control_pb2.LogChunk(data=b"2J\x1b]0;title\x07\nend\n", stream="stdout")
            return
        context.add_callback(self._leave)
        yield control_pb2.LogChunk(data=b"one\ntw", stream="stdout", service=request.service)
        yield control_pb2.LogChunk(data=b"o\n", stream="stdout", service=request.service)
        yield control_pb2.LogChunk(data=b"bad\n", stream="stderr", service=request.service)
        while request.follow and context.is_active():
            yield control_pb2.LogChunk(data=b"more\n", stream="stdout")
            time.sleep(0.02)

    def Exec(self, request_iterator, context):  # type: ignore[no-untyped-def]
        start = next(request_iterator).start
        self.started.append(start)
        self.sizes.append((start.size.rows, start.size.columns))
        if start.command[:1] == ["refused"]:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "web is not running")
        yield control_pb2.ExecOutput()
        if start.console:
            yield control_pb2.ExecOutput(stdout=b"login: ")
        for message in request_iterator:
            if message.HasField("resize"):
                self.sizes.append((message.resize.rows, message.resize.columns))
            if message.stdin_closed or b"q" in message.stdin:
                break
            if message.stdin:
                yield control_pb2.ExecOutput(stdout=b"<" + message.stdin + b">")
        yield control_pb2.ExecOutput(stderr=b"bye\n")
        yield control_pb2.ExecOutput(exit=control_pb2.ExecExit(code=42))

    def _leave(self) -> None:
        self.left = True


@pytest.fixture(params=["straight", "through a gateway"])
def inside(request: pytest.FixtureRequest) -> Iterator[LogsScheduler]:
    server = grpc.server(ThreadPoolExecutor(8))
    fake = LogsScheduler()
    control_pb2_grpc.add_AgentControlServicer_to_server(fake, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    if request.param == "straight":
        fake.variables = {"PERSYS_GRPC_ENDPOINT": address}
        yield fake
    else:
        with gateway(scheduler_addr=(address,)) as url:
            fake.variables = {"PERSYS_API_ENDPOINT": url}
            yield fake
    server.stop(None).wait()


@pytest.fixture
def process(inside: LogsScheduler, environ: dict[str, str]) -> Process:
    def run(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *words],
            env={**environ, **inside.variables},
            input=stdin,
            capture_output=True,
            timeout=30,
            check=False,
        )

    return run


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def test_logs_keep_both_outputs_apart(process: Process, inside: LogsScheduler) -> None:
    ended = process("logs", "web", "--tail", "5", "--timestamps", "--since", "10m")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"one\ntwo\n", b"bad\n")
    (request,) = inside.requests
    assert (request.tail, request.timestamps, request.follow) == (5, True, False)
    assert 595 < time.time() - request.since.seconds < 660


def test_lines_of_a_stack_begin_with_their_service(process: Process) -> None:
    ended = process("logs", "web", "--service", "db")

    assert (ended.stdout, ended.stderr) == (b"db | one\ndb | two\n", b"db | bad\n")


def test_logs_of_an_unknown_workload_fail_with_a_reason(process: Process) -> None:
    ended = process("logs", "nobody")

    assert (ended.returncode, ended.stderr) == (1, b"error: workload not found: nobody\n")


def test_following_logs_exits_cleanly_on_interrupt(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    following = subprocess.Popen(
        [*COMMAND, "logs", "web", "-f"],
        env={**environ, **inside.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert following.stdout is not None
    assert following.stdout.read(12) == b"one\ntwo\nmore"
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=20)

    assert (following.returncode, errors) == (0, b"bad\n")
    eventually(lambda: inside.left, "the scheduler knows")


def test_following_logs_exits_cleanly_when_the_pipe_is_closed(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    result = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | head -n 3; exit ${PIPESTATUS[0]}',
            "-",
            *COMMAND,
            "logs",
            "web",
            "-f",
        ],
        env={**environ, **inside.variables},
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert (result.returncode, result.stdout) == (0, b"one\ntwo\nmore\n")
    assert result.stderr == b"bad\n"


def test_the_exit_code_of_the_command_is_that_of_persysctl(
    process: Process, inside: LogsScheduler
) -> None:
    ended = process("exec", "web", "--", "sh", "-c", "x", "--", "--wait")

    assert (ended.returncode, ended.stdout, ended.stderr) == (42, b"", b"bye\n")
    assert list(inside.started[0].command) == ["sh", "-c", "x", "--", "--wait"]


def test_standard_input_is_forwarded_until_its_end(process: Process) -> None:
    ended = process("exec", "-i", "web", "cat", stdin=b"x" * 100_000)

    assert ended.returncode == 42
    assert ended.stdout.count(b"x") == 100_000


def test_a_refused_session_prints_the_reason(process: Process) -> None:
    ended = process("exec", "web", "--", "refused")

    assert (ended.returncode, ended.stderr) == (1, b"error: web is not running\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("exec", "web"), b"the command is missing"),
        (("exec", "-it", "web", "--", "sh"), b"needs a terminal"),
        (("logs", "web", "-f", "--previous"), b"cannot be combined with --previous"),
        (("node", "list", "--", "x"), b"only used before the command of exec"),
    ],
)
def test_invalid_options_are_refused_before_any_request(
    process: Process, words: tuple[str, ...], text: bytes
) -> None:
    ended = process(*words)

    assert ended.returncode == 2
    assert text in ended.stderr


def test_output_of_a_workload_is_escaped_on_a_terminal(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    terminal = Terminal(("logs", "hostile"), {**environ, **inside.variables})
    terminal.read_until(b"end")

    assert terminal.end() == 0
    assert b"\x1b[31mred\x1b[0m ^[[2J^[]0;title^G" in terminal.seen


def test_raw_logs_reach_the_terminal_unescaped(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    terminal = Terminal(("logs", "hostile", "--raw"), {**environ, **inside.variables})
    terminal.read_until(b"end")

    assert terminal.end() == 0
    assert b"\x1b[2J\x1b]0;title\x07" in terminal.seen


def test_a_pipe_receives_every_byte_of_a_log(process: Process) -> None:
    assert b"\x1b[2J\x1b]0;title\x07" in process("logs", "hostile").stdout


def test_an_error_text_of_a_node_is_escaped_on_a_terminal(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    terminal = Terminal(("logs", "hostile-error"), {**environ, **inside.variables})
    terminal.read_until(b"node says")

    assert terminal.end() == 1
    terminal.read_until(b"title^G")
    assert b"\x1b" not in terminal.seen


def test_a_terminal_session_is_raw_follows_resizes_and_restores_the_terminal(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    variables = {**environ, **inside.variables}
    terminal = Terminal(("exec", "-it", "web", "--", "sh"), variables)
    eventually(terminal.is_raw, "the terminal is raw")
    terminal.send(b"a\x03")  # Ctrl-C is for the command
    terminal.read_until(b"\x03>")
    terminal.resize(33, 99)
    eventually(lambda: (33, 99) in inside.sizes, "the new size is sent")
    terminal.send(b"q")
    terminal.read_until(b"bye")

    assert terminal.end() == 42
    assert not terminal.is_raw()
    assert inside.started[0].tty


def test_a_console_receives_every_key_except_the_detach_key(
    inside: LogsScheduler, environ: dict[str, str]
) -> None:
    variables = {**environ, **inside.variables}
    terminal = Terminal(("console", "vm", "--force"), variables)
    terminal.read_until(b"detach with Ctrl-]")
    terminal.read_until(b"login: ")
    assert terminal.is_raw()
    terminal.send(b"a\x03\x04")
    terminal.read_until(b"<a\x03\x04>")
    terminal.send(b"b")
    terminal.read_until(b"<b>")
    terminal.send(b"\x1dc")

    terminal.end()
    assert not terminal.is_raw()
    assert b"c" not in terminal.seen.split(b"<b>")[1]
    (start,) = inside.started
    assert (start.workload_id, start.console, start.force) == ("vm", True, True)
