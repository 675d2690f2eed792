"""Every adapter of the Store port, including the real etcd, and shared fixtures."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from persys.infra.clock import SystemClock
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.memory import MemoryStore
from persys.store.port import Store, WatchEvent
from persys.store.sqlite import SqliteStore

_DEADLINE_SECONDS = 30.0
_namespaces = itertools.count()


class EtcdServer:
    """A real etcd on free ports. `kill` is kill -9; `start` starts it again with its data."""

    def __init__(
        self, directory: Path, *flags: str, scheme: str = "http", name: str = "default"
    ) -> None:
        self._directory = directory
        self._flags = flags
        self._scheme = scheme
        self._name = name
        self._client, self._peer, self._metrics = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"127.0.0.1:{self._client}"
        self.peer = f"{name}=http://127.0.0.1:{self._peer}"

    def start(self) -> None:
        self.launch(self.peer)
        self.wait_until_healthy()

    def launch(self, cluster: str) -> None:
        client, peer = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer}"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    f"--data-dir={self._directory / 'data'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--name={self._name}",
                    f"--initial-cluster={cluster}",
                    f"--listen-metrics-urls=http://127.0.0.1:{self._metrics}",
                    *self._flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            # Its threads may continue for a moment.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=_DEADLINE_SECONDS)

    def wait_until_healthy(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self._metrics}/health", timeout=2
                ) as response:
                    if response.status == 200:
                        return
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.05)
        log = (self._directory / "log").read_text(errors="replace")
        raise RuntimeError(f"etcd did not become healthy:\n{log[-2000:]}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """Shared by all tests that do not stop it; each test has its own key prefix."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start_etcd(tmp_path: Path) -> Iterator[Callable[..., EtcdServer]]:
    """Servers for one test: to kill, or with flags."""
    servers: list[EtcdServer] = []

    def start(*flags: str, scheme: str = "http") -> EtcdServer:
        directory = tmp_path / f"etcd-{len(servers)}"
        directory.mkdir()
        servers.append(EtcdServer(directory, *flags, scheme=scheme))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def etcd_cluster(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    """Three members, so that one may fail."""
    members = []
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        members.append(EtcdServer(tmp_path / name, name=name))
    for member in members:
        member.launch(",".join(one.peer for one in members))
    try:
        for member in members:
            member.wait_until_healthy()
        yield members
    finally:
        for member in members:
            member.kill()


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Awaitable[Store]]:
    async def open_memory() -> Store:
        return MemoryStore(SystemClock().monotonic)

    async def open_sqlite() -> Store:
        return await SqliteStore.open(tmp_path / "store.db", monotonic=SystemClock().monotonic)

    async def open_etcd() -> Store:
        return await EtcdStore.open(options)

    if request.param == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        options = EtcdOptions(endpoints=(server.endpoint,), prefix=f"/test-{next(_namespaces)}")
        return open_etcd
    return open_sqlite if request.param == "sqlite" else open_memory


@pytest.fixture
async def store(opener: Callable[[], Awaitable[Store]]) -> AsyncIterator[Store]:
    opened = await opener()
    yield opened
    await opened.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]:
    """Wait until a condition is true, or fail the test."""

    async def wait(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while not await condition():  # noqa: ASYNC110 the store has no event to wait for
                await asyncio.sleep(0.05)

    return wait


@pytest.fixture
def take() -> Callable[
    [AsyncIterator[tuple[WatchEvent, ...]], int],
    Coroutine[None, None, list[tuple[WatchEvent, ...]]],
]:
    """The first revisions of a watch, which is then closed."""

    async def take_first(
        changes: AsyncIterator[tuple[WatchEvent, ...]], count: int
    ) -> list[tuple[WatchEvent, ...]]:
        assert isinstance(changes, AsyncGenerator)
        taken: list[tuple[WatchEvent, ...]] = []
        async with asyncio.timeout(_DEADLINE_SECONDS), aclosing(changes):
            async for one in changes:
                taken.append(one)
                if len(taken) == count:
                    break
        return taken

    return take_first
