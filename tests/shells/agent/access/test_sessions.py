"""Logs and exec on the real Docker."""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2 as pb
from shells.agent.conftest import RUNNING, STOPPED, Agent, eventually

Shell = Callable[..., pb.ContainerSpec]


def logs(agent: Agent, name: str, **asked: object) -> Any:
    """The log chunks of a call that can be cancelled."""
    request = pb.LogsRequest(workload_id=name, **asked)  # type: ignore[arg-type]
    return agent.stub.StreamLogs(request, timeout=30)


def text(chunks: Iterable[pb.LogChunk], stream: str = "") -> str:
    wanted = [chunk.data for chunk in chunks if stream in ("", chunk.stream)]
    return b"".join(wanted).decode()


def written(agent: Agent, name: str) -> str:
    """The log so far; empty before the container exists."""
    try:
        return text(logs(agent, name))
    except grpc.RpcError as err:
        if err.code() is grpc.StatusCode.NOT_FOUND:
            return ""
        raise


def started(agent: Agent, name: str, spec: pb.ContainerSpec, *, revision: str = "r1") -> None:
    agent.apply(name, spec, revision=revision)
    agent.wait_for(name, RUNNING)


def run_in(
    agent: Agent, name: str, *command: str, stdin: Iterable[bytes] = (), tty: bool = False
) -> tuple[str, str, int]:
    """Run a command. Returns stdout, stderr and the exit code."""
    start = pb.ExecStart(workload_id=name, command=command, tty=tty)

    def inputs() -> Iterator[pb.ExecInput]:
        yield pb.ExecInput(start=start)
        for data in stdin:
            yield pb.ExecInput(stdin=data)
        yield pb.ExecInput(stdin_closed=True)

    outputs = list(agent.stub.Exec(inputs(), timeout=30))
    stdout = b"".join(one.stdout for one in outputs)
    stderr = b"".join(one.stderr for one in outputs)
    return stdout.decode(), stderr.decode(), outputs[-1].exit.code


@pytest.fixture
def visited(agent: Agent, shell: Shell) -> Iterator[Agent]:
    """An agent with the workload `visited`, which has written to stdout and stderr."""
    line = "echo one; echo two >&2; echo three; trap exit TERM; while :; do sleep 0.1; done"
    started(agent, "visited", shell(line))
    eventually(lambda: text(logs(agent, "visited")).count("\n") == 3, "it has written")
    yield agent
    agent.delete("visited")
    agent.wait_until_gone("visited")


def test_stdout_and_stderr_are_separate(visited: Agent) -> None:
    chunks = list(logs(visited, "visited"))

    assert text(chunks, "stdout") == "one\nthree\n"
    assert text(chunks, "stderr") == "two\n"


def test_tail_limits_the_number_of_lines(visited: Agent) -> None:
    assert text(logs(visited, "visited", tail=1)).count("\n") == 1


def test_timestamps_are_sent_only_on_request(visited: Agent) -> None:
    lines = text(logs(visited, "visited", timestamps=True)).splitlines()

    assert sorted(line.partition("Z ")[2] for line in lines) == ["one", "three", "two"]


def test_since_skips_older_lines(visited: Agent) -> None:
    assert text(logs(visited, "visited", since_unix_nanos=4 * 10**18)) == ""


def test_follow_receives_later_output_and_the_end(agent: Agent, shell: Shell) -> None:
    line = "echo one; while [ ! -e /go ]; do sleep 0.05; done; echo two"
    started(agent, "followed", shell(line))
    stream = logs(agent, "followed", follow=True)

    first = next(stream)
    run_in(agent, "followed", "touch", "/go")
    rest = text(stream)
    agent.delete("followed")
    agent.wait_until_gone("followed")

    assert (first.data, rest) == (b"one\n", "two\n")


def test_follow_continues_across_a_restart(agent: Agent, shell: Shell) -> None:
    line = "n=$(cat /n || echo 0); echo run $n; echo $((n+1)) >/n; sleep 0.3; exit 1"
    agent.apply("restless", shell(line, restart="on-failure", retries_max=2))
    eventually(lambda: bool(written(agent, "restless")), "it is there")

    describe = text(logs(agent, "restless", follow=True), "stdout")
    agent.delete("restless")
    agent.wait_until_gone("restless")

    assert describe.split("\n") == ["run 0", "run 1", "run 2", ""]


def test_previous_returns_the_output_before_the_last_start(agent: Agent, shell: Shell) -> None:
    line = "n=$(cat /n || echo 0); echo run $n; echo $((n+1)) >/n; [ $n = 0 ] || sleep 60; exit 1"
    agent.apply("again", shell(line, restart="on-failure"))
    eventually(lambda: "run 1" in written(agent, "again"), "the second run")

    describe = text(logs(agent, "again", previous=True), "stdout")
    agent.delete("again")
    agent.wait_until_gone("again")

    assert describe == "run 0\n"


def test_the_log_tail_of_a_replaced_container_is_stored_until_its_workload_is_deleted(
    agent: Agent, shell: Shell
) -> None:
    loop = "trap exit TERM; while :; do sleep 0.05; done"
    started(agent, "replaced", shell(f"echo old; echo worse >&2; {loop}"))
    eventually(lambda: text(logs(agent, "replaced")).count("\n") == 2, "it has written")
    started(agent, "replaced", shell(f"echo new; {loop}"), revision="r2")
    eventually(lambda: written(agent, "replaced") == "new\n", "the new one has written")

    before = text(logs(agent, "replaced", previous=True))
    last = text(logs(agent, "replaced", previous=True, tail=1, timestamps=True))
    kept = list((agent.directory / "past").iterdir())
    agent.delete("replaced")
    agent.wait_until_gone("replaced")

    assert sorted(before.splitlines()) == ["old", "worse"]
    assert last.count("Z ") == 1
    assert [path.name for path in kept] == ["replaced"]
    assert not list((agent.directory / "past").iterdir())


def test_a_slow_log_reader_does_not_increase_memory(agent: Agent, shell: Shell) -> None:
    line = "head -c 60000000 /dev/zero | tr '\\0' x | fold -w 199; echo end; sleep 60"
    started(agent, "flood", shell(line))
    eventually(lambda: "end" in text(logs(agent, "flood", tail=1)), "it has written", within=60)
    before = agent.memory_mb()
    streams = [logs(agent, "flood", follow=True) for _ in range(4)]
    for stream in streams:
        next(stream)

    eventually(lambda: agent.is_idle(), "the agent waits for its readers")
    grown = agent.memory_mb() - before
    for stream in streams:
        stream.cancel()
    agent.delete("flood")
    agent.wait_until_gone("flood")

    assert grown < 40, f"{grown} MB for 4 x 60 MB of logs"


def test_logs_of_an_unknown_workload_are_not_found(agent: Agent) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        text(logs(agent, "nobody"))

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_exec_returns_output_and_exit_code(visited: Agent) -> None:
    assert run_in(visited, "visited", "sh", "-c", "echo out; echo err >&2; exit 7") == (
        "out\n",
        "err\n",
        7,
    )


def test_exec_passes_stdin_until_it_is_closed(visited: Agent) -> None:
    data = [bytes([65 + number % 26]) * 50_000 for number in range(40)]

    out, _, code = run_in(visited, "visited", "wc", "-c", stdin=data)

    assert (out.strip(), code) == ("2000000", 0)


def test_exec_of_a_missing_command_fails_with_its_name(visited: Agent) -> None:
    out, err, code = run_in(visited, "visited", "no-such-command")

    assert code in (126, 127)
    assert "no-such-command" in out + err


def test_exec_sets_the_terminal_size(visited: Agent) -> None:
    inputs: SimpleQueue[pb.ExecInput | None] = SimpleQueue()
    start = pb.ExecStart(
        workload_id="visited",
        command=["sh"],
        tty=True,
        size=pb.TerminalSize(rows=31, columns=97),
    )
    inputs.put(pb.ExecInput(start=start))
    stream = visited.stub.Exec(iter(inputs.get, None), timeout=30)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.extend(one.stdout for one in stream), daemon=True)
    reader.start()

    def send_until(line: bytes, answer: bytes) -> None:
        def answered() -> bool:
            inputs.put(pb.ExecInput(stdin=line))
            return answer in b"".join(seen)

        eventually(answered, f"{answer!r} in {seen}")

    send_until(b"stty size\n", b"31 97")
    inputs.put(pb.ExecInput(resize=pb.TerminalSize(rows=41, columns=107)))
    send_until(b"stty size\n", b"41 107")
    inputs.put(pb.ExecInput(stdin=b"exit\n"))
    reader.join(timeout=10)
    inputs.put(None)

    assert not reader.is_alive()


@pytest.mark.parametrize("tty", [True, False])
def test_the_command_is_killed_when_the_caller_disconnects(visited: Agent, tty: bool) -> None:
    start = pb.ExecStart(workload_id="visited", command=["sleep", "4321"], tty=tty)
    never: SimpleQueue[pb.ExecInput] = SimpleQueue()
    never.put(pb.ExecInput(start=start))
    call = visited.stub.Exec(iter(never.get, None), timeout=30)
    next(call)
    eventually(lambda: "sleep 4321" in visited.inside("visited", "ps"), "it runs")

    call.cancel()

    eventually(lambda: "sleep 4321" not in visited.inside("visited", "ps"), "it is gone")
    never.put(pb.ExecInput(stdin_closed=True))


def test_exec_in_a_stopped_workload_is_refused(agent: Agent, shell: Shell) -> None:
    agent.apply("ended", shell("exit 0"))
    agent.wait_for("ended", STOPPED)

    with pytest.raises(grpc.RpcError) as refused:
        run_in(agent, "ended", "true")
    agent.delete("ended")
    agent.wait_until_gone("ended")

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "not running" in str(refused.value.details())


def test_exec_can_be_disabled_per_node(
    new_agent: Callable[..., Agent], sleeper: pb.ContainerSpec
) -> None:
    strict = new_agent("-standalone", "-insecure", PERSYS_EXEC_ENABLED="false")
    strict.start()
    started(strict, "closed", sleeper)

    with pytest.raises(grpc.RpcError) as refused:
        run_in(strict, "closed", "true")

    assert "PERSYS_EXEC_ENABLED" in str(refused.value.details())


def test_usage_matches_docker_stats(agent: Agent, shell: Shell) -> None:
    line = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); while :; do :; done"
    started(agent, "busy", shell(line))

    eventually(lambda: agent.status("busy").usage.cpu_percent > 5, "it is busy", within=40)
    usage = agent.status("busy").usage
    agent.delete("busy")
    agent.wait_until_gone("busy")

    assert usage.source == "docker"
    assert usage.memory_bytes > 10_000_000


STACK = """
services:
  db:
    image: IMAGE
    command: ["sh", "-c", "echo from db; exec sleep 3600"]
    init: true
  web:
    image: IMAGE
    command: ["sh", "-c", "echo from web; exec sleep 3600"]
    init: true
"""


def test_logs_of_a_stack_include_all_services(
    new_agent: Callable[..., Agent], demo_image: str
) -> None:
    agent = new_agent("-standalone", "-insecure", PERSYS_COMPOSE_ENABLED="true")
    agent.start()
    compose = pb.ComposeSpec(compose_yaml=STACK.replace("IMAGE", demo_image))
    request = pb.ApplyWorkloadRequest(
        id="shop",
        type=pb.WORKLOAD_TYPE_COMPOSE,
        revision_id="r1",
        desired_state=pb.DESIRED_STATE_RUNNING,
        spec=pb.WorkloadSpec(compose=compose),
    )
    agent.stub.ApplyWorkload(request, timeout=10)
    agent.wait_for("shop", RUNNING, within=40)
    eventually(lambda: text(logs(agent, "shop")).count("\n") == 2, "both have written")

    describe = {chunk.service: chunk.data for chunk in logs(agent, "shop")}
    one = text(logs(agent, "shop", service="db"))
    with pytest.raises(grpc.RpcError) as ambiguous:
        run_in(agent, "shop", "hostname")
    eventually(lambda: agent.status("shop").usage.memory_bytes > 0, "its figures", within=40)
    usage = agent.status("shop").usage
    agent.delete("shop")
    agent.wait_until_gone("shop")

    assert describe == {"db": b"from db\n", "web": b"from web\n"}
    assert one == "from db\n"
    assert "shop has the services db, web" in str(ambiguous.value.details())
    assert usage.type == pb.WORKLOAD_TYPE_COMPOSE
