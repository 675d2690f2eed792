"""What a process can be told about its traces: the variables that OpenTelemetry knows."""

from dataclasses import dataclass

from persys.infra.settings import setting


@dataclass(frozen=True)
class TraceSettings:
    otlp_endpoint: str = setting(
        "",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "JAEGER_ENDPOINT",
        help="host:port of an OTLP receiver (gRPC) for traces; none: no traces",
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
        help="milliseconds that the receiver has to take a batch of traces",
    )
