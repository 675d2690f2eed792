"""What -f names: files, directories, URLs and standard input."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from persys.cli.framework.exit_codes import UsageError
from persys.cli.specs.sources import fetch
from persys.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run

WEB = "id: web\ncontainer: {image: nginx}\n"


@contextmanager
def a_web_server(answers: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Tests print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_directory_means_its_files_in_order(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    for name, workload in (("b.yml", "b"), ("a.yaml", "a"), ("c.json", "c"), ("d.txt", "d")):
        (tmp_path / name).write_text(f'{{"id": "{workload}", "container": {{"image": "x"}}}}')
    (tmp_path / "e.yaml").mkdir()

    result = ctl("apply", "-f", str(tmp_path))

    assert result.out == "a: created\nb: created\nc: created\n"


@pytest.mark.parametrize("words", [(), ("-R",)])
def test_a_schema_in_a_directory_is_not_a_spec_file(
    words: tuple[str, ...], cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "workload.schema.json").write_text(ctl("schema").out)

    result = ctl("apply", "-f", str(tmp_path), *words)

    assert result.out == "web: created\n"


def test_recursive_includes_directories_but_not_hidden_ones(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    for folder in ("x", "x/y", ".git"):
        (tmp_path / folder).mkdir()
    (tmp_path / "x" / "y" / "web.yaml").write_text(WEB)
    (tmp_path / ".git" / "db.yaml").write_text(WEB.replace("web", "db"))

    flat = ctl("apply", "-f", str(tmp_path))
    result = ctl("apply", "-f", str(tmp_path), "-R")

    assert flat.code == 2
    assert "--recursive" in flat.err
    assert result.out == "web: created\n"


def test_a_workload_in_two_files_is_refused(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(WEB)

    result = ctl("apply", "-f", str(tmp_path))

    assert result.code == 2
    assert f"'web' is also in {tmp_path}/a.yaml" in result.err
    assert cluster.applied == []


def test_a_url_is_applied(cluster: Cluster, ctl: Run) -> None:
    moved = (302, {"Location": "/web.yaml?v=1"}, b"")
    with a_web_server({"/old": moved, "/web.yaml?v=1": (200, {}, WEB.encode())}) as address:
        result = ctl("apply", "-f", f"{address}/old")

    assert (result.code, result.out) == (0, "web: created\n")


def test_an_error_in_a_url_names_its_line(ctl: Run) -> None:
    with a_web_server({"/web.yaml": (200, {}, b"id: web\nimage: x\n")}) as address:
        result = ctl("apply", "-f", f"{address}/web.yaml")

    assert result.code == 2
    assert result.err.startswith(f"error: {address}/web.yaml:2:1: image: unknown key")


def test_a_compose_file_at_a_url_is_named_after_its_directory() -> None:
    with a_web_server({"/shop/compose.yaml": (200, {}, b"services: {}")}) as address:
        assert fetch(f"{address}/shop/compose.yaml").directory == "shop"


def test_a_url_that_cannot_be_used_is_refused() -> None:
    around = (301, {"Location": "/around"}, b"")
    away = (301, {"Location": "file:///etc/passwd"}, b"")
    answers = {
        "/around": around,
        "/away": away,
        "/large": (200, {}, b"x" * 2000),
        "/binary": (200, {}, b"\xff"),
    }
    with a_web_server(answers) as address:
        for path, problem in (
            ("/around", "more than 5 redirects"),
            ("/away", "it redirects to file:"),
            ("/large", "larger than 1000 bytes"),
            ("/binary", "not UTF-8"),
            ("/none", "status 404"),
        ):
            with pytest.raises(UsageError, match=problem):
                fetch(address + path, bytes_max=1000)


def test_a_server_that_does_not_answer_in_time_is_given_up(unused_address: str) -> None:
    with pytest.raises(UnavailableError, match="cannot read"):
        fetch(f"http://{unused_address}/web.yaml")
    with a_web_server({"/": (200, {}, b"")}) as address, pytest.raises(UnavailableError):
        fetch(address, seconds=0.0)


def test_credentials_in_a_url_are_refused_and_not_printed() -> None:
    with pytest.raises(UsageError, match="without credentials") as error:
        fetch("https://me:hunter2@example.org/web.yaml")

    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["http://", "https://host:port/x"])
def test_an_invalid_url_is_named(url: str) -> None:
    with pytest.raises(UsageError, match="invalid URL"):
        fetch(url)
