"""Docker in memory, in place of aiodocker's client. The real engine code of the agent uses it.

It supports the calls of the Engine API that the agent makes. Its state outlives the agent, and each removal
is recorded for the tests.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from faults.injection import HANG, OVERSIZED, REFUSED, Injector
from faults.sites import DOCKER
from persys.agent.runtimes.docker.engine import Engine

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
NEVER = "0001-01-01T00:00:00Z"
BLOCK = b"x" * 1024 * 1024
OVERSIZED_BLOCKS = 33  # more than the agent reads
FRAME = b"\1\0\0\0\0\0\0\6hello\n"


class RefusalError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class MemoryDocker:
    """The daemon."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, dict[str, Any]] = {"bridge": {"Id": "bridge", "Name": "bridge"}}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.images: set[str] = set()
        self.execs: dict[str, str] = {}
        self.removed: list[str] = []
        self.listeners: set[asyncio.Queue[bytes]] = set()
        self._count = 0

    def handle(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
        parts = path.split("/")
        if len(parts) > 1 and parts[0].startswith("v") and parts[0] != "volumes":
            parts = parts[1:]
        match method, *parts:
            case "GET", ("version" | "info" | "_ping"):
                return {"ApiVersion": "1.44"}
            case "GET", "containers", "json":
                return [_listed(one) for one in self._having(self.containers, params)]
            case "POST", "containers", "create":
                return {"Id": self.create(params["name"], body)["Id"]}
            case "GET", "containers", name, "json":
                return self._container(name)
            case "GET", "containers", name, "stats":
                return _stats(self._container(name))
            case "POST", "containers", name, verb:
                return self._change(self._container(name), verb, params, body)
            case "DELETE", "containers", name:
                return self.remove(self._container(name))
            case "GET", "images", *name, "json":
                return self._image("/".join(name))
            case "DELETE", "images", *name:
                self.images.discard("/".join(name))
                return None
            case "GET", "networks":
                return self._having(self.networks, params)
            case "POST", "networks", name, ("connect" | "disconnect" as verb):
                joined = self._container(body["Container"])["NetworkSettings"]["Networks"]
                joined.pop(name, None)
                if verb == "connect":
                    joined[name] = _endpoint(name)
                return None
            case "DELETE", "networks", name:
                self.networks.pop(name, None)
                return None
            case "GET", "volumes":
                return {"Volumes": self._having(self.volumes, params)}
            case "DELETE", "volumes", name:
                self.removed.append(f"volume {name}")
                self.volumes.pop(name, None)
                return None
            case "GET", "exec", _, "json":
                return {"Running": False, "ExitCode": 0, "Pid": 0}
            case _:
                raise AssertionError(f"unknown call {method} {path}")

    def create(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if any(one["Name"] == f"/{name}" for one in self.containers.values()):
            raise RefusalError(409, f"the name {name} is in use")
        if body["Image"] not in self.images:
            raise RefusalError(404, f"no such image: {body['Image']}")
        self._count += 1
        host = dict(body.get("HostConfig") or {})
        network = str(host.setdefault("NetworkMode", "bridge"))
        host.setdefault("RestartPolicy", {"Name": "no"}).setdefault("MaximumRetryCount", 0)
        mounts = [
            {"Destination": one["Target"], "Source": one["Source"]}
            for one in host.get("Mounts", ())
        ]
        created: dict[str, Any] = {
            "Id": f"{self._count:064x}",
            "Name": f"/{name}",
            "Image": f"sha256:{body['Image']}",
            "Config": {"Image": body["Image"], "Labels": dict(body["Labels"]), "Tty": False},
            "HostConfig": host,
            "Mounts": mounts,
            "State": {
                "Status": "created",
                "ExitCode": 0,
                "Pid": 0,
                "StartedAt": NEVER,
                "FinishedAt": NEVER,
            },
            "NetworkSettings": {"Networks": {network: _endpoint(network)}},
            "RestartCount": 0,
        }
        self.containers[str(created["Id"])] = created
        self.emit_event(created, "create")
        return created

    def start(self, one: dict[str, Any]) -> None:
        one["State"] |= {"Status": "running", "Pid": 1, "StartedAt": stamp()}
        self.emit_event(one, "start")

    def stop(self, one: dict[str, Any], code: int = 137) -> None:
        if one["State"]["Status"] == "running":
            one["State"] |= {"Status": "exited", "ExitCode": code, "FinishedAt": stamp()}
            self.emit_event(one, "die")

    def remove(self, one: dict[str, Any], *, by_hand: bool = False) -> None:
        if not by_hand:
            self.removed.append(f"container {one['Name'].removeprefix('/')}")
        del self.containers[one["Id"]]
        self.emit_event(one, "destroy")

    def running(self, workload_id: str) -> list[dict[str, Any]]:
        return [one for one in self.of(workload_id) if one["State"]["Status"] == "running"]

    def of(self, workload_id: str) -> list[dict[str, Any]]:
        label = "persys.workload_id"
        found = list(self.containers.values())
        return [one for one in found if one["Config"]["Labels"].get(label) == workload_id]

    def emit_event(self, one: Mapping[str, Any], action: str) -> None:
        line = {"Action": action, "Actor": {"Attributes": one["Config"]["Labels"]}}
        for listener in self.listeners:
            listener.put_nowait(json.dumps(line).encode() + b"\n")

    def _container(self, name: str) -> dict[str, Any]:
        for one in self.containers.values():
            if name in (one["Id"], one["Name"].removeprefix("/")):
                return one
        raise RefusalError(404, f"no such container: {name}")

    def _change(self, one: dict[str, Any], verb: str, params: Mapping[str, str], body: Any) -> Any:
        match verb:
            case "start":
                self.start(one)
            case "stop":
                self.stop(one)
            case "pause":
                one["State"]["Status"] = "paused"
            case "unpause":
                one["State"]["Status"] = "running"
            case "rename":
                one["Name"] = f"/{params['name']}"
            case "update":
                one["HostConfig"] |= body
            case "exec":
                self.execs[f"x{len(self.execs)}"] = one["Id"]
                return {"Id": f"x{len(self.execs) - 1}"}
            case _:
                raise AssertionError(f"unknown call {verb}")
        return None

    def _image(self, name: str) -> dict[str, Any]:
        if name not in self.images and f"{name}:latest" not in self.images:
            raise RefusalError(404, f"no such image: {name}")
        return {"Id": f"sha256:{name}"}

    def _having(
        self, things: Mapping[str, dict[str, Any]], params: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        wanted = json.loads(params.get("filters", "{}")).get("label", [])
        return [one for one in things.values() if _has_labels(one, wanted)]


def stamp() -> str:
    now = EPOCH + timedelta(seconds=asyncio.get_running_loop().time())
    return now.isoformat().replace("+00:00", "Z")


def _endpoint(network: str) -> dict[str, str]:
    return {"EndpointID": "e1", "NetworkID": network, "IPAddress": ""}


def _has_labels(one: Mapping[str, Any], wanted: list[str]) -> bool:
    labels = one.get("Labels") or one.get("Config", {}).get("Labels") or {}
    return all(
        labels.get(name) == value if equals else name in labels
        for name, equals, value in (label.partition("=") for label in wanted)
    )


def _listed(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Id": one["Id"],
        "Names": [one["Name"]],
        "Labels": one["Config"]["Labels"],
        "State": one["State"]["Status"],
        "ImageID": one["Image"],
        "Ports": [],
    }


def _stats(one: Mapping[str, Any]) -> dict[str, Any]:
    del one
    return {"memory_stats": {"usage": 1}, "cpu_stats": {"cpu_usage": {"total_usage": 1}}}


class FakeResponse:
    """The part of aiohttp.ClientResponse that the agent uses."""

    def __init__(self, status: int, chunks: AsyncIterator[bytes]) -> None:
        self.status = status
        self.content = _Content(chunks)
        self.connection = None

    def close(self) -> None: ...


class _Content:
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._is_over = False

    async def iter_any(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk
        self._is_over = True

    async def readany(self) -> bytes:
        chunk = await anext(self._chunks, b"")
        self._is_over = not chunk
        return chunk

    def read_nowait(self) -> bytes:
        return b""

    def at_eof(self) -> bool:
        return self._is_over


class MemoryClient:
    """In place of aiodocker.Docker. One per opened connection."""

    api_version = "auto"

    def __init__(self, docker: MemoryDocker, injector: Injector) -> None:
        self._docker = docker
        self._injector = injector
        self.session = self

    def _canonicalize_url(self, path: str, *, versioned_api: bool) -> str:
        del versioned_api
        return path

    async def close(self) -> None: ...

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str],
        data: str | None,
        headers: Mapping[str, str],
    ) -> AsyncIterator[FakeResponse]:
        del headers
        kind = self._fault_of(method, url, params, data)
        self._injector.raise_if(kind)
        if kind == HANG:
            await self._injector.mended.wait()
        if kind == REFUSED:
            yield _refused(500, "it failed (injected by the test)")
            return
        try:
            chunks = self._answer(method, url, params, json.loads(data) if data else None)
        except RefusalError as err:
            yield _refused(err.status, str(err))
            return
        self._injector.raise_afterwards_if(kind)
        yield FakeResponse(200, _oversized() if kind == OVERSIZED else chunks)

    def _fault_of(self, method: str, url: str, params: Mapping[str, str], data: str | None) -> str:
        if url == "version":
            return ""  # part of every call
        callee = Engine.check_reachable.__name__ if url == "_ping" else ""
        about = [one["Name"] for one in self._docker.containers.values() if one["Id"] in url]
        return self._injector.fault_of(
            DOCKER, method, url, params, data or "", about, callee=callee
        )

    def _answer(
        self, method: str, url: str, params: Mapping[str, str], body: Any
    ) -> AsyncIterator[bytes]:
        if url.endswith("/events"):
            return self._events()
        if url.endswith("/logs"):
            return _parts(FRAME)
        if url.endswith("images/create"):
            self._docker.images |= {params["fromImage"], params["fromImage"].partition(":")[0]}
            return _parts(b'{"status": "done", "id": "a"}\n')
        response = self._docker.handle(method, url, params, body)
        return _parts(json.dumps(response).encode()) if response is not None else _parts()

    async def _events(self) -> AsyncIterator[bytes]:
        listener: asyncio.Queue[bytes] = asyncio.Queue()
        self._docker.listeners.add(listener)
        try:
            while True:
                yield await listener.get()
        finally:
            self._docker.listeners.discard(listener)


def client_of(docker: MemoryDocker, injector: Injector) -> Callable[..., MemoryClient]:
    """In place of the class aiodocker.Docker."""

    def opened(**_options: Any) -> MemoryClient:
        return MemoryClient(docker, injector)

    return opened


def _refused(status: int, message: str) -> FakeResponse:
    return FakeResponse(status, _parts(json.dumps({"message": message}).encode()))


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def _oversized() -> AsyncIterator[bytes]:
    for _ in range(OVERSIZED_BLOCKS):
        yield BLOCK
