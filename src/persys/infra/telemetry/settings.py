"""Tracing settings, with the environment variables of OpenTelemetry."""

from dataclasses import dataclass

from persys.infra.settings import setting


@dataclass(frozen=True)
class TraceSettings:
    otlp_endpoint: str = setting(
        "",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "JAEGER_ENDPOINT",
        help="host:port of an OTLP receiver (gRPC) for traces; none: tracing is off",
    )
    otlp_insecure: bool = setting(
        False,
        "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
        "OTEL_EXPORTER_OTLP_INSECURE",
        help="send traces without TLS",
    )
    otlp_timeout_ms: int = setting(
        3_000,
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        help="timeout for exporting a batch of traces, in milliseconds",
    )
