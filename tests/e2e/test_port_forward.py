"""`persysctl port-forward` and `cp`: directly to a scheduler and through a gateway, on the real Docker."""

import hashlib
import io
import os
import re
import signal
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from e2e.cluster import BIN, Cluster
from e2e.containers import docker
from e2e.gateways import Gateway
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

MIB = 1024 * 1024
SECONDS = 60
ECHO, LENGTH, LOOPBACK, NOTHING = 7000, 7001, 7002, 7999
# The second replies after the end of its input; the third listens on the loopback of the container only.
SCRIPT = (
    f"nc -ll -p {ECHO} -e cat & "
    f"nc -ll -p {LENGTH} -e wc -c & "
    f"httpd -f -p 127.0.0.1:{LOOPBACK} -h /bin & "
    "trap exit TERM; while :; do sleep 0.1; done"
)
Way = dict[str, str]


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), {"main": cluster.target})
    gateway.process.start()
    yield gateway
    gateway.process.close()


@pytest.fixture(params=["straight", "through a gateway"])
def way(request: pytest.FixtureRequest, cluster: Cluster, gateway: Gateway, tmp_path: Path) -> Way:
    """The environment of persysctl."""
    common = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERSYS_INSECURE": "true"}
    if request.param == "straight":
        return {**common, "PERSYS_GRPC_ENDPOINT": cluster.target}
    return {**common, "PERSYS_API_ENDPOINT": gateway.address}


@pytest.fixture
def workload(cluster: Cluster, demo_image: str, unique_id: str) -> str:
    container = pb.ContainerSpec(image=demo_image, command=["sh", "-c", SCRIPT], init=True)
    resources = pb.ResourceRequirements(cpu_millicores=50, memory_mb=64)
    spec = pb.WorkloadSpec(type="container", resources=resources, container=container)
    cluster.run_all([unique_id], spec)
    return unique_id


class Forward:
    """A running persysctl port-forward."""

    def __init__(self, process: subprocess.Popen[str], ports: list[int], errors: Path) -> None:
        self.process = process
        self.ports = ports
        self.errors = errors


@contextmanager
def forwarded(way: Way, workload: str, *ports: int) -> Iterator[Forward]:
    errors = Path(way["HOME"]) / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [BIN / "persysctl", "port-forward", workload, *map(str, ports)],
            env=way,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    assert process.stdout is not None
    try:
        local = []
        for port in ports:
            line = process.stdout.readline()
            found = re.fullmatch(rf"Forwarding 127\.0\.0\.1:(\d+) -> {workload}:{port}\n", line)
            assert found is not None, line or errors.read_text()
            local.append(int(found[1]))
        yield Forward(process, local, errors)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
        process.stdout.close()


def exchange(port: int, data: bytes) -> bytes:
    """Send everything and close this direction; read until the other side closes its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:

        def send() -> None:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

        sender = Thread(target=send)
        sender.start()
        received = bytearray()
        while part := connection.recv(256 * 1024):
            received += part
        sender.join(SECONDS)
        return bytes(received)


def until_open(port: int) -> None:
    eventually(lambda: echoes(port), "the container listens")


def echoes(port: int) -> bool:
    try:
        return exchange(port, b"x") == b"x"
    except ConnectionError:
        return False


def test_ports_are_forwarded_also_to_the_loopback_of_a_container(way: Way, workload: str) -> None:
    with forwarded(way, workload, ECHO, LENGTH, LOOPBACK) as forward:
        echo, length, loopback = forward.ports
        until_open(echo)

        data = os.urandom(300_000)
        assert exchange(echo, data) == data
        assert exchange(length, data).strip() == b"300000"
        assert exchange(loopback, b"GET /absent HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.")

    assert forward.process.returncode == 0


def test_an_error_of_a_connection_does_not_end_the_others(way: Way, workload: str) -> None:
    with forwarded(way, workload, ECHO, NOTHING) as forward:
        echo, nothing = forward.ports
        until_open(echo)
        with socket.create_connection(("127.0.0.1", echo), timeout=SECONDS) as connection:
            connection.sendall(b"one")
            assert connection.recv(10) == b"one"
            with (
                socket.create_connection(("127.0.0.1", nothing), timeout=SECONDS) as refused,
                pytest.raises(ConnectionResetError),
            ):
                refused.recv(1)
            connection.sendall(b"two")
            assert connection.recv(10) == b"two"
        assert f"port {NOTHING} of {workload}: connection refused" in forward.errors.read_text()


def test_the_next_connection_reaches_a_restarted_container(
    way: Way, workload: str, cluster: Cluster
) -> None:
    with forwarded(way, workload, ECHO) as forward:
        (echo,) = forward.ports
        until_open(echo)
        docker("restart", "-t", "1", cluster.container(workload).id)

        until_open(echo)


@pytest.mark.full
def test_64_mib_and_50_connections_pass_a_forward(way: Way, workload: str) -> None:
    with forwarded(way, workload, ECHO) as forward:
        (echo,) = forward.ports
        until_open(echo)
        data = os.urandom(MIB) * 64

        returned = exchange(echo, data)
        assert hashlib.sha256(returned).digest() == hashlib.sha256(data).digest()

        # Opened one after the other: the server of the container accepts few at a time.
        with ExitStack() as opened:
            connections = [opened.enter_context(an_echo(echo)) for _ in range(50)]
            with ThreadPoolExecutor(50) as threads:
                assert all(threads.map(returns_a_part, connections))


@contextmanager
def an_echo(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        yield connection


def returns_a_part(connection: socket.socket) -> bool:
    part, received = os.urandom(10_000), b""
    connection.sendall(part)
    while len(received) < len(part):
        received += connection.recv(len(part))
    return received == part


def test_a_slow_reader_stops_the_sender(way: Way, workload: str) -> None:
    """Nothing on the way buffers what the local program does not read."""
    with forwarded(way, workload, ECHO) as forward:
        (echo,) = forward.ports
        until_open(echo)
        with socket.create_connection(("127.0.0.1", echo), timeout=3) as connection:
            sent = 0
            with suppress(TimeoutError):
                while sent < 256 * MIB:
                    sent += connection.send(b"x" * MIB)
        assert sent < 128 * MIB


def copy(way: Way, source: str, target: str, stdin: bytes = b"") -> bytes:
    ended = run_copy(way, source, target, stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_copy(
    way: Way, source: str, target: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [BIN / "persysctl", "cp", source, target],
        env=way,
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def a_tree(root: Path) -> Path:
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "data").write_bytes(os.urandom(2 * MIB))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "link").symlink_to("inner/data")
    return root


def contents(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def test_a_tree_is_copied_to_a_container_and_back(way: Way, workload: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")

    copy(way, str(tree), f"{workload}:/copied")
    copy(way, str(tree), f"{workload}:/tmp/")
    copy(way, f"{workload}:/copied", str(tmp_path / "back"))
    (tmp_path / "into").mkdir()
    copy(way, f"{workload}:/tmp/tree", str(tmp_path / "into"))

    assert contents(tmp_path / "back") == contents(tree)
    assert contents(tmp_path / "into" / "tree") == contents(tree)


def test_an_archive_is_copied_through_standard_input_and_output(way: Way, workload: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("note")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))

    copy(way, "-", f"{workload}:/tmp", packed.getvalue())
    received = copy(way, f"{workload}:/tmp/note", "-")

    with tarfile.open(fileobj=io.BytesIO(received)) as archive:
        file = archive.extractfile("note")
        assert file is not None
        assert file.read() == b"hello"


def test_a_missing_path_is_refused_and_leaves_nothing(
    way: Way, workload: str, tmp_path: Path
) -> None:
    ended = run_copy(way, f"{workload}:/absent", str(tmp_path / "here"))

    assert ended.returncode != 0
    assert b"path not found: /absent" in ended.stderr
    assert not (tmp_path / "here").exists()


def test_files_of_a_stopped_container_are_copied(
    way: Way,
    workload: str,
    cluster: Cluster,
    tmp_path: Path,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    (tmp_path / "file").write_text("kept")
    copy(way, str(tmp_path / "file"), f"{workload}:/file")
    assert persysctl("workload", "stop", workload, "--wait").returncode == 0

    copy(way, f"{workload}:/file", str(tmp_path / "again"))

    assert (tmp_path / "again").read_text() == "kept"
