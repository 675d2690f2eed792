"""A repository, and real https and ssh servers that require authentication."""

import base64
import getpass
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from ssh_server import ssh_server

USER, PASSWORD = "deployer", "p4ss word'\"$#"


class Repository:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "stack.git"
        self._work = directory / "work"
        _run("git", "init", "--quiet", "--bare", "--initial-branch=main", str(self.path))
        _run("git", "clone", "--quiet", str(self.path), str(self._work))

    def commit(self, files: dict[str, str]) -> str:
        """Create a commit on the branch main. Returns its id."""
        for name, text in files.items():
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git = ("git", "-C", str(self._work))
        _run(*git, "add", "--all")
        author = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        _run(*git, *author, "commit", "--quiet", "--message", "change")
        _run(*git, "push", "--quiet", "origin", "HEAD:main")
        return _run(*git, "rev-parse", "HEAD")


class _GitOverHttps(BaseHTTPRequestHandler):
    """git http-backend with a password."""

    root: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        return

    def _serve(self) -> None:
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {expected}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="forge"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": "/usr/bin:/bin",
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": USER,
        }
        result = subprocess.run(
            ["git", "http-backend"], env=env, input=body, capture_output=True, check=True
        )
        head, _, content = result.stdout.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def https(repository: Repository, directory: Path) -> Iterator[tuple[str, Path]]:
    """The URL of the repository, and the certificate to trust."""
    key, certificate = directory / "forge.key", directory / "forge.pem"
    names = "subjectAltName=IP:127.0.0.1"
    _run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-nodes", "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=forge"),
        *("-addext", names),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    handler = type("Handler", (_GitOverHttps,), {"root": repository.path.parent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            port = server.server_address[1]
            yield f"https://127.0.0.1:{port}/{repository.path.name}", certificate
        finally:
            server.shutdown()


@contextmanager
def over_ssh(repository: Repository, directory: Path, port: int) -> Iterator[tuple[str, str, str]]:
    """The URL of the repository, a private key with access, and the known_hosts line."""
    with ssh_server(directory, port) as (key, known_host):
        url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{repository.path}"
        yield url, key.read_text(), known_host


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"{command}: {result.stderr}"
    return result.stdout.strip()
