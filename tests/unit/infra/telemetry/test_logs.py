import json
import subprocess
import sys

import pytest

from persys.errors import SettingsError
from persys.infra.telemetry.logs import configure_logs

PROGRAM = """
import structlog, sys
from persys.infra.telemetry.logs import configure_logs
configure_logs(level=sys.argv[1], form=sys.argv[2])
log = structlog.get_logger()
log.debug("node.seen")
log.warning("agent.silenced", node_id="n1")
"""


def lines_of(level: str, form: str) -> list[str]:
    """The output of a separate process: logging is configured once per process."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, level, form],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout == ""
    return result.stderr.splitlines()


@pytest.mark.parametrize("level", ["", "loud", "5"])
def test_an_unknown_level_is_refused_with_the_known_ones(level: str) -> None:
    with pytest.raises(SettingsError, match="expected one of debug, info, warn"):
        configure_logs(level=level, form="json")


@pytest.mark.parametrize("form", ["xml", "text"])
def test_an_unknown_format_is_refused_with_the_known_ones(form: str) -> None:
    with pytest.raises(SettingsError, match="expected json or console"):
        configure_logs(level="info", form=form)


def test_without_a_terminal_each_line_is_json() -> None:
    (line,) = lines_of("info", "")

    assert json.loads(line).items() >= {
        ("event", "agent.silenced"),
        ("node_id", "n1"),
        ("level", "warning"),
    }


def test_the_level_is_read_in_any_case() -> None:
    assert len(lines_of("DEBUG", "json")) == 2
    assert lines_of("Error", "json") == []


def test_console_lines_are_readable_text() -> None:
    (line,) = lines_of("warn", "console")

    assert "agent.silenced" in line
    assert not line.startswith("{")


LIBRARIES = """
import logging, socket, warnings
from persys.infra.telemetry.logs import configure_logs
configure_logs(level="info", form="json")
import asyncio, grpc
logging.getLogger("asyncio").error("task %s failed", "t1")
logging.getLogger("somebody").warning("bad %d", "arguments")
logging.getLogger("noisy").info("hidden")
warnings.warn("old call")
taken = socket.create_server(("127.0.0.1", 0))
async def serve():
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    try:
        server.add_insecure_port(f"127.0.0.1:{taken.getsockname()[1]}")
    except RuntimeError:
        pass
asyncio.run(serve())
"""


def test_log_records_of_libraries_are_json_too() -> None:
    result = subprocess.run(
        [sys.executable, "-c", LIBRARIES], capture_output=True, text=True, timeout=60, check=True
    )

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["library"] for line in lines] == ["asyncio", "somebody", "py.warnings"]
    assert (lines[0]["level"], lines[0]["text"]) == ("error", "task t1 failed")
