"""A proxy between an agent and Docker, libvirt or a scheduler, with which tests simulate outages."""

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path

DOCKER_SOCKET = "/var/run/docker.sock"
LIBVIRT_SOCKET = "/var/run/libvirt/libvirt-sock"
_REQUEST = re.compile(rb"^((?:GET|POST|PUT|DELETE) \S+) HTTP/1\.1\r$", re.MULTILINE)


class Proxy:
    """Forwards to a socket, and records the HTTP requests in `requests`.

    `cut` refuses and closes connections until `restore`; `hold` keeps them open, and nothing is forwarded
    until `release`.
    """

    def __init__(self, path: Path, *, socket: str = DOCKER_SOCKET) -> None:
        self.path = path
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.requests: list[str] = []  # method and path, in the order of their arrival
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def restore(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result(10)

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self._forwarding.clear)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._forwarding.set)

    def close(self) -> None:
        self.release()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await self._open_listener()

    async def _disconnect(self) -> None:
        if self._server is not None:
            self._server.close()
        self._close_listener()
        while self._open:
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    async def _open_listener(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, self.path)

    def _close_listener(self) -> None:
        self.path.unlink(missing_ok=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._socket)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()  # nothing listens
            return
        self._open |= {writer, far_writer}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reader, far_writer, self._record))
            group.create_task(self._pump(far_reader, writer))
        self._open -= {writer, far_writer}

    def _record(self, data: bytes) -> None:
        self.requests += [found.decode() for found in _REQUEST.findall(data)]

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        record: Callable[[bytes], None] | None = None,
    ) -> None:
        try:
            while data := await reader.read(65536):
                if record is not None:
                    record(data)
                await self._forwarding.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other side was closed
        writer.close()


class PortProxy(Proxy):
    """The same between two ports of this host."""

    def __init__(self, port: int, *, target: int) -> None:
        super().__init__(Path())
        self._port = port
        self._target = target

    async def _open_listener(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def _close_listener(self) -> None:
        """The port is closed with its server."""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._target)
