"""Tracing: no effect when off; one log line when the receiver is unreachable."""

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import grpc
import pytest
import structlog
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from persys.errors import SettingsError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.telemetry import tracing
from persys.infra.telemetry.otlp import (
    ExportErrorLog,
    MonitoredExporter,
    OtlpTracer,
    parse_endpoint,
)
from persys.infra.telemetry.side_server import SideServer


async def nothing() -> None:
    pass


def test_without_an_endpoint_no_headers_are_sent_and_no_work_is_wrapped() -> None:
    tracing.start("any", endpoint="", insecure=True, timeout_ms=3000)

    with tracing.server_span("served", lambda: pytest.fail("nobody asks for headers")) as span:
        span.answered("OK")
        with tracing.client_span("called", node_id="n1") as call, tracing.internal_span("commit"):
            assert call.headers == ()
    assert tracing.bind_span(nothing) is nothing
    tracing.stop()


def test_without_an_endpoint_opentelemetry_is_not_even_imported() -> None:
    code = (
        "import sys, persys.scheduler.app, persys.agent.app; from persys.infra.telemetry import tracing; "
        "tracing.start('any', endpoint='', insecure=True, timeout_ms=3000); "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("text", "insecure", "target", "plain"),
    [
        ("collector:4317", False, "collector:4317", False),
        ("collector:4317", True, "collector:4317", True),
        ("http://collector:4317", False, "collector:4317", True),
        ("https://collector:4317/", True, "collector:4317", False),
        ("[::1]:4317", True, "[::1]:4317", True),
    ],
)
def test_a_scheme_takes_precedence_over_the_setting(
    text: str, insecure: bool, target: str, plain: bool
) -> None:
    assert parse_endpoint(text, insecure=insecure) == (target, plain)


@pytest.mark.parametrize(
    "text", ["collector", "udp://collector:6831", "http://collector:14268/api/traces", ":4317"]
)
def test_an_invalid_endpoint_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="OTLP endpoint"):
        parse_endpoint(text, insecure=True)


class Receiver(SpanExporter):
    """Accepts or refuses spans as the test sets, and logs like the exporter of OpenTelemetry."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    def export(self, spans: object) -> SpanExportResult:
        self.asked += 1
        if self.answers:
            return SpanExportResult.SUCCESS
        logging.getLogger("opentelemetry.exporter").warning("no answer from %s", "collector")
        return SpanExportResult.FAILURE


def test_an_unreachable_receiver_is_logged_once_and_once_when_it_returns() -> None:
    receiver, trouble = Receiver(), ExportErrorLog()
    exporter = MonitoredExporter(receiver, trouble)
    spans: list[ReadableSpan] = []

    with structlog.testing.capture_logs() as lines:
        for responses in (True, False, False, False, True, True):
            receiver.answers = responses
            exporter.export(spans)
    trouble.close()

    assert [(line["event"], line.get("reason")) for line in lines] == [
        ("tracing.failed", "no answer from collector"),
        ("tracing.works", None),
    ]


def test_an_unreachable_receiver_does_not_delay_the_shutdown() -> None:
    receiver, trouble = Receiver(), ExportErrorLog()
    exporter = MonitoredExporter(receiver, trouble)
    receiver.answers = False

    with structlog.testing.capture_logs():
        exporter.export([])
        exporter.closing = True
        exporter.export([])
    trouble.close()

    assert receiver.asked == 1


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP receiver that stores the spans."""

    def __init__(self) -> None:
        self.got: list[trace_service_pb2.ExportTraceServiceRequest] = []
        self.beside: dict[str, str] = {}
        self._server = grpc.server(ThreadPoolExecutor(1))
        add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
        add(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(  # noqa: N802 - gRPC names the methods
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.got.append(request)
        self.beside = dict(context.invocation_metadata())
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def about(self) -> dict[str, str]:
        """The resource attributes of the spans."""
        (spans,) = self.got[0].resource_spans
        return {one.key: one.value.string_value for one in spans.resource.attributes}

    @property
    def names(self) -> list[str]:
        scopes = (
            scope for one in self.got for part in one.resource_spans for scope in part.scope_spans
        )
        return [span.name for scope in scopes for span in scope.spans]

    def close(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def collector() -> Iterator[Collector]:
    created = Collector()
    yield created
    created.close()


def trace_once(endpoint: str, *, timeout_ms: int = 3000) -> None:
    tracer = OtlpTracer("persys-agent", endpoint=endpoint, insecure=True, timeout_ms=timeout_ms)
    with tracer.internal_span("commit", {}):
        pass
    tracer.close()


def test_spans_name_their_program(collector: Collector) -> None:
    trace_once(collector.endpoint)

    assert collector.about["service.name"] == "persys-agent"
    assert collector.about["service.version"]


async def test_health_and_metrics_have_spans(collector: Collector) -> None:
    tracing.start("any", endpoint=collector.endpoint, insecure=True, timeout_ms=3000)
    server = SideServer(
        supervisor=Supervisor("any", SystemClock(), CollectorRegistry()),
        registry=CollectorRegistry(),
        health=lambda: {"status": "ok"},
    )
    port = await server.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        for path in ("health", "metrics"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                assert response.status == 200
    await server.stop()
    await asyncio.to_thread(tracing.stop)

    assert collector.names == ["GET /health", "GET /metrics"]


def test_resource_attributes_of_the_operator_take_precedence(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "north-3")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "rack=7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "tenant=blue")

    trace_once(collector.endpoint)

    assert (collector.about["service.name"], collector.about["rack"]) == ("north-3", "7")
    assert collector.beside["tenant"] == "blue"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")],
)
def test_a_span_that_is_not_sampled_is_not_exported(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    trace_once(collector.endpoint)

    assert collector.got == []


def test_the_export_timeout_is_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")  # OpenTelemetry would read seconds
    with socket.create_server(("127.0.0.1", 0)) as deaf, structlog.testing.capture_logs() as lines:
        started_at = time.monotonic()
        trace_once(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout_ms=300)
        took = time.monotonic() - started_at

    assert 0.25 < took < 2.5
    assert [line["event"] for line in lines] == ["tracing.failed"]


def test_invalid_tracing_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="0 ms"):
        trace_once("collector:4317", timeout_ms=0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_COMPRESSION"):
        trace_once("collector:4317")
