"""Real processes for benchmarks: started, awaited with a deadline, and ended by their pid."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(condition: Callable[[], bool], what: str, *, seconds: float = 120) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"{what} within {seconds:g}s")
        sleep(0.02)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def process(
    arguments: list[str], *, env: Mapping[str, str] | None = None, port: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process and wait until it listens; its output is shown only if the start fails."""
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(
            arguments, env={**os.environ, **(env or {})}, stdout=output, stderr=output
        )
        try:
            try:
                until(lambda: accepts(port) or started.poll() is not None, f"{arguments[0]} up")
            finally:
                if not accepts(port):
                    output.seek(0)
                    sys.stderr.write(output.read().decode(errors="replace"))
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


@contextmanager
def scheduler(store: str, **env: str) -> Iterator[tuple[int, int, subprocess.Popen[bytes]]]:
    """A scheduler on free ports: its gRPC port, its metrics port, its process."""
    grpc_port, metrics_port = free_port(), free_port()
    settings = {
        "GRPC_PORT": str(grpc_port),
        "METRICS_PORT": str(metrics_port),
        "PERSYS_STORE": store,
        "LOG_LEVEL": "warning",
        **env,
    }
    with process(
        [str(BIN / "persys-scheduler"), "-insecure"], env=settings, port=grpc_port
    ) as started:
        yield grpc_port, metrics_port, started


@contextmanager
def etcd(directory: Path) -> Iterator[int]:
    client, peer = free_port(), free_port()
    arguments = [
        "etcd",
        f"--data-dir={directory}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
    ]
    with process(arguments, port=client):
        yield client


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def bare_resident_pages() -> int:
    """Memory of an idle Python process that has imported gRPC."""
    with subprocess.Popen(
        [sys.executable, "-c", "import grpc.aio; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        pages = resident_pages(bare.pid)
        bare.communicate(b"\n")
    return pages
