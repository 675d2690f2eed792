"""Traces: nothing at all when off; one line in the log when their receiver is gone."""

import logging
import subprocess
import sys

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from persys.errors import SettingsError
from persys.infra import tracing
from persys.infra.otlp import NotedExporter, Trouble, parse_endpoint


async def nothing() -> None:
    pass


def test_without_an_endpoint_nothing_is_carried_and_nothing_wrapped() -> None:
    tracing.start("any", endpoint="", insecure=True)

    with tracing.serving("served", lambda: pytest.fail("nobody asks for headers")) as span:
        span.answered("OK")
        with tracing.calling("called", node_id="n1") as call, tracing.within("commit"):
            assert call.headers == ()
    assert tracing.bound(nothing) is nothing
    tracing.stop()


def test_without_an_endpoint_opentelemetry_is_not_even_imported() -> None:
    code = (
        "import sys, persys.scheduler.app, persys.agent.app; from persys.infra import tracing; "
        "tracing.start('any', endpoint='', insecure=True); "
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
def test_a_scheme_beats_the_setting(text: str, insecure: bool, target: str, plain: bool) -> None:
    assert parse_endpoint(text, insecure=insecure) == (target, plain)


@pytest.mark.parametrize(
    "text", ["collector", "udp://collector:6831", "http://collector:14268/api/traces", ":4317"]
)
def test_an_endpoint_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="OTLP endpoint"):
        parse_endpoint(text, insecure=True)


class Receiver(SpanExporter):
    """Takes spans or does not, as told, and complains as OpenTelemetry's own exporter does."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    def export(self, spans: object) -> SpanExportResult:
        self.asked += 1
        if self.answers:
            return SpanExportResult.SUCCESS
        logging.getLogger("opentelemetry.exporter").warning("no answer from %s", "collector")
        return SpanExportResult.FAILURE


def test_a_receiver_that_is_gone_is_logged_once_and_once_when_it_is_back() -> None:
    receiver, trouble = Receiver(), Trouble()
    exporter = NotedExporter(receiver, trouble)
    spans: list[ReadableSpan] = []

    with structlog.testing.capture_logs() as lines:
        for answers in (True, False, False, False, True, True):
            receiver.answers = answers
            exporter.export(spans)
    trouble.close()

    assert [(line["event"], line.get("reason")) for line in lines] == [
        ("tracing.failed", "no answer from collector"),
        ("tracing.works", None),
    ]


def test_a_receiver_that_is_gone_is_not_waited_for_at_the_end() -> None:
    receiver, trouble = Receiver(), Trouble()
    exporter = NotedExporter(receiver, trouble)
    receiver.answers = False

    with structlog.testing.capture_logs():
        exporter.export([])
        exporter.closing = True
        exporter.export([])
    trouble.close()

    assert receiver.asked == 1
