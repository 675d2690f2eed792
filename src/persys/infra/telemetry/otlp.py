"""Records and exports spans with OpenTelemetry. Only this module imports it, and only when tracing is on.

A separate thread exports the spans. If the receiver does not respond, spans are dropped and one line is
logged; calls are not delayed, because the queue is bounded.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.exporter import InvalidCompressionValueException
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from persys import __version__
from persys.errors import SettingsError
from persys.infra.telemetry.tracing import Headers, Opened, Received, Span, Work

log = structlog.get_logger()

# Codes that are errors of the server. Others are errors of the caller.
SERVER_FAULTS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)

_propagator = TraceContextTextMapPropagator()


class OtlpTracer:
    def __init__(self, service: str, *, endpoint: str, insecure: bool, timeout_ms: int) -> None:
        exporter = new_exporter(endpoint, insecure=insecure, timeout_ms=timeout_ms)
        self._error_log = ExportErrorLog()
        self._exporter = MonitoredExporter(exporter, self._error_log)
        resource = Resource.create({"service.name": service, "service.version": __version__})
        resource = resource.merge(OTELResourceDetector().detect())  # OTEL_RESOURCE_ATTRIBUTES wins
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("persys")

    def server_span(self, name: str, headers: Received) -> Opened:
        carrier = {key.lower(): value for key, value in headers if isinstance(value, str)}
        return self._open(name, SpanKind.SERVER, {}, _propagator.extract(carrier))

    def client_span(self, name: str, attributes: dict[str, str]) -> Opened:
        return self._open(name, SpanKind.CLIENT, attributes)

    def internal_span(self, name: str, attributes: dict[str, str]) -> Opened:
        return self._open(name, SpanKind.INTERNAL, attributes)

    def bind_span(self, work: Work) -> Work:
        current = otel_context.get_current()

        async def resumed() -> None:
            token = otel_context.attach(current)
            try:
                await work()
            finally:
                otel_context.detach(token)

        return resumed

    def close(self) -> None:
        self._exporter.closing = True
        self._provider.shutdown()
        self._error_log.close()

    @contextmanager
    def _open(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, str],
        parent: otel_context.Context | None = None,
    ) -> Iterator[Span]:
        inside = kind is SpanKind.INTERNAL  # calls set their status in `answered`
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            record_exception=inside,
            set_status_on_exception=inside,
        ) as recorded:
            yield RecordedSpan(recorded, kind)


class RecordedSpan(Span):
    def __init__(self, span: trace.Span, kind: SpanKind) -> None:
        self._span = span
        self._kind = kind

    @property
    def headers(self) -> Headers:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._span))
        return tuple(carrier.items())

    def answered(self, code: str) -> None:
        self._span.set_attribute("rpc.response.status_code", code)
        if code in SERVER_FAULTS or (code != "OK" and self._kind is SpanKind.CLIENT):
            self._span.set_status(Status(StatusCode.ERROR, code))


class ExportErrorLog(logging.Handler):
    """Logs warnings of OpenTelemetry, once until exporting works again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged: set[str] = set()
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.name not in self._logged:
            self._logged.add(record.name)
            log.warning("tracing.failed", reason=record.getMessage())

    def recovered(self) -> None:
        if self._logged:
            self._logged.clear()
            log.info("tracing.works")

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()


class MonitoredExporter(SpanExporter):
    """Detects when exporting works again, and does not delay the shutdown when it fails."""

    def __init__(self, exporter: SpanExporter, error_log: ExportErrorLog) -> None:
        self._exporter = exporter
        self._error_log = error_log
        self._failing = False
        self.closing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.closing and self._failing:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        self._failing = result is not SpanExportResult.SUCCESS
        if not self._failing:
            self._error_log.recovered()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def new_exporter(endpoint: str, *, insecure: bool, timeout_ms: int) -> SpanExporter:
    """An exporter. It reads headers, compression and certificates from OpenTelemetry's variables.

    The timeout is set here, because the library reads seconds where the standard has milliseconds.
    """
    target, plain = parse_endpoint(endpoint, insecure=insecure)
    if timeout_ms < 1:
        raise SettingsError(f"invalid OTLP timeout {timeout_ms} ms: expected 1 or more")
    try:
        return OTLPSpanExporter(endpoint=target, insecure=plain, timeout=timeout_ms / 1000)
    except InvalidCompressionValueException as err:
        raise SettingsError(str(err)) from err


def parse_endpoint(text: str, *, insecure: bool) -> tuple[str, bool]:
    """host:port, and whether it is used without TLS; a scheme takes precedence over the setting."""
    scheme, found, rest = text.rpartition("://")
    if found and scheme not in ("http", "https"):
        raise SettingsError(
            f"invalid OTLP endpoint {text!r}: expected host:port, http:// or https://"
        )
    host, _, port = rest.rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"invalid OTLP endpoint {text!r}: expected host:port of OTLP over gRPC")
    return f"{host}:{port}", scheme == "http" or (insecure and scheme != "https")
