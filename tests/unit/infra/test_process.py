import signal
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import asyncio, os, signal, sys
from persys.errors import SettingsError, StoreUnavailableError
from persys.infra.telemetry.logs import configure_logs
from persys.infra.process import run, serve

configure_logs(level="info", form="json")

async def forever() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)
"""


def start(main: str) -> subprocess.Popen[str]:
    program = HEAD + textwrap.dedent(main) + "\nsys.exit(run(main))\n"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_main_that_ends_exits_with_0() -> None:
    assert finish(start("async def main(stop): pass")) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_parts_and_exits_with_0(number: signal.Signals) -> None:
    process = start("""
    async def ready() -> None:
        print("ready", flush=True)
        await forever()
    async def main(stop):
        await serve({"a": ready, "b": forever}, stop)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)

    assert finish(process) == (0, "cleaned up\ncleaned up\n", "")


def test_an_expected_error_is_one_line_and_exit_code_1() -> None:
    main = "async def main(stop): raise SettingsError('GRPC_PORT: in use')"

    assert finish(start(main)) == (1, "", "error: GRPC_PORT: in use\n")


def test_an_expected_error_of_one_part_ends_the_others_and_is_one_line() -> None:
    process = start("""
    async def failing() -> None:
        await asyncio.sleep(0)
        raise StoreUnavailableError("no answer")
    async def nested() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(failing())
    async def main(stop):
        await serve({"a": forever, "b": nested}, stop)
    """)

    assert finish(process) == (1, "cleaned up\n", "error: no answer\n")


@pytest.mark.parametrize(
    "main",
    [
        "async def main(stop): raise ZeroDivisionError('a bug')",
        """
        async def failing() -> None:
            raise ZeroDivisionError('a bug')
        async def main(stop):
            await serve({"a": failing, "b": forever}, stop)
        """,
    ],
)
def test_a_defect_exits_with_1_and_a_traceback(main: str) -> None:
    code, _, err = finish(start(main))

    assert code == 1
    assert "ZeroDivisionError: a bug" in err
    assert "Traceback" in err


def test_a_defect_is_not_hidden_by_an_expected_error() -> None:
    code, _, err = finish(
        start("""
        async def main(stop):
            raise ExceptionGroup("two", [SettingsError("x"), ZeroDivisionError("a bug")])
        """)
    )

    assert code == 1
    assert "ZeroDivisionError: a bug" in err


def test_a_process_leaves_no_core_dump() -> None:
    code = (
        "import asyncio, ctypes, resource\n"
        "from persys.infra.process import run\n"
        "async def main(stop): print(ctypes.CDLL(None).prctl(3), resource.getrlimit(resource.RLIMIT_CORE))\n"
        "run(main)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "0 (0, 0)"
