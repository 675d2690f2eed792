"""Traces of a real cluster, received by a real OTLP receiver."""

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.cluster import Cluster
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

CONTROL = "persys.control.v1.AgentControl"
AGENT = "persys.agent.v1.AgentService"
SPAN = re.compile(
    r"Trace ID +: (?P<trace>\w+)\n +Parent ID +: (?P<parent>\w*)\n +ID +: (?P<id>\w+)\n"
    r" +Name +: (?P<name>[^\n]+)\n +Kind +: SPAN_KIND_(?P<kind>\w+)"
)


class Span(NamedTuple):
    trace: str
    parent: str
    id: str
    name: str
    kind: str


class Receiver:
    """Rotel, which prints each received span."""

    def __init__(self, directory: Path) -> None:
        found = importlib.util.find_spec("rotel")
        assert found is not None
        assert found.origin is not None
        grpc_port, http_port = free_port(), free_port()
        self.endpoint = f"127.0.0.1:{grpc_port}"
        self.process = Process(
            [
                str(Path(found.origin).parent / "rotel-agent"),
                "start",
                f"--otlp-grpc-endpoint={self.endpoint}",
                f"--otlp-http-endpoint=127.0.0.1:{http_port}",
                "--debug-log=traces",
                "--debug-log-verbosity=detailed",
                "--exporter=blackhole",
                f"--pid-file={directory / 'receiver.pid'}",
            ],
            {},
            log=directory / "receiver.log",
            ready=lambda: listens_on(grpc_port),
        )

    def spans(self) -> list[Span]:
        return [Span(*found.groups()) for found in SPAN.finditer(self.process.log)]

    def span(self, name: str, kind: str) -> Span | None:
        found = (one for one in self.spans() if (one.name, one.kind) == (name, kind))
        return next(found, None)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    created = Receiver(tmp_path)
    try:
        yield created
    finally:
        created.process.close()


def traced(receiver: Receiver) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


def test_an_apply_is_one_trace_from_the_user_to_the_agent(
    new_cluster: Callable[..., Cluster],
    receiver: Receiver,
    sleeper: pb.WorkloadSpec,
    names: Callable[[int], list[str]],
) -> None:
    receiver.process.start()
    cluster = new_cluster(scheduler=traced(receiver), agent=traced(receiver))
    cluster.start()

    cluster.run_all(names(1), sleeper)

    wanted = [
        (f"{CONTROL}/ApplyWorkload", "SERVER"),
        ("commit", "INTERNAL"),
        (f"{AGENT}/ApplyWorkload", "CLIENT"),
        (f"{AGENT}/ApplyWorkload", "SERVER"),
    ]
    eventually(
        lambda: receiver.span(*wanted[0]) is not None and receiver.span(*wanted[3]) is not None,
        lambda: f"the spans of the apply: {receiver.spans()}",
    )
    control_span, dispatch_span, agent_span = (receiver.span(*wanted[place]) for place in (0, 2, 3))
    assert control_span is not None
    assert dispatch_span is not None
    assert agent_span is not None
    same_trace = [one for one in receiver.spans() if one.trace == control_span.trace]
    assert {(one.name, one.kind) for one in same_trace} >= set(wanted)
    assert control_span.parent == ""
    assert dispatch_span.parent == control_span.id
    assert agent_span.parent == dispatch_span.id


def test_an_unreachable_trace_receiver_is_logged_once_and_delays_no_call(
    new_cluster: Callable[..., Cluster],
    receiver: Receiver,
    sleeper: pb.WorkloadSpec,
    names: Callable[[int], list[str]],
) -> None:
    cluster = new_cluster(scheduler=traced(receiver), agent=traced(receiver))
    cluster.start()
    cluster.run_all(names(2), sleeper)
    eventually(lambda: "tracing.failed" in cluster.scheduler.log, "the failure is logged")

    receiver.process.start()
    eventually(lambda: "tracing.works" in cluster.scheduler.log, "the recovery is logged")

    assert cluster.scheduler.log.count("tracing.failed") == 1
    receiver.process.kill()
    assert cluster.scheduler.stop() == 0
