"""The persys command, as far as it needs no cluster."""

import socket
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from persys.cli.local.demo import demo_request, root_file_system
from persys.cli.local.packages import find_command


def persys(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "persys.cli.persys", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_clean_demo_without_a_control_plane_names_the_next_step(unused_address: str) -> None:
    port = unused_address.partition(":")[2]
    ended = persys("clean-demo", "--scheduler-port", port, "--state-dir", "/nowhere")

    assert ended.returncode == 4
    assert f"no response from the scheduler at {unused_address}" in ended.stderr
    assert "persys up" in ended.stderr


def test_down_without_processes_changes_nothing(tmp_path: Path) -> None:
    ended = persys("down", "--state-dir", str(tmp_path))

    assert ended.returncode == 0
    assert "agent was not running" in ended.stdout
    assert "scheduler was not running" in ended.stdout
    assert "ca was not running" in ended.stdout


def test_a_port_in_use_is_named(tmp_path: Path, unused_address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = persys(
            *("up", "--state-dir", str(tmp_path), "--scheduler-port", str(port)),
            *("--ca-port", unused_address.partition(":")[2]),
        )

    assert ended.returncode == 1
    assert f"port {port} is in use by another process" in ended.stderr
    assert "--scheduler-port" in ended.stderr


@pytest.mark.parametrize("words", [(), ("sideways",), ("up", "--agent-port", "70000")])
def test_an_invalid_command_line_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert persys(*words).returncode == 2


def test_the_demo_uses_the_given_host_port() -> None:
    assert demo_request(host_port=None).spec.container.ports[0].host_port == 18080
    assert demo_request(host_port=1234).spec.container.ports[0].host_port == 1234


def test_the_image_has_a_shell_a_web_server_and_a_page() -> None:
    busybox = find_command("busybox")
    assert busybox is not None

    with tarfile.open(fileobj=BytesIO(root_file_system(Path(busybox)))) as tar:
        names = tar.getnames()

    assert {"bin/busybox", "bin/sh", "bin/httpd", "bin/nc", "www/index.html"} <= set(names)
    assert names.count("bin/busybox") == 1
