"""The baseline for containers: create and start on the Docker socket, nothing else."""

import asyncio
import json
from typing import Any, Self

import aiohttp

SOCKET = "/var/run/docker.sock"


class BareDocker:
    def __init__(self, socket: str = SOCKET) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=socket, limit=0),
            timeout=aiohttp.ClientTimeout(total=120),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, name: str, image: str, command: list[str]) -> str:
        """Create and start, with the same limits as a workload of the benchmark."""
        body = {
            "Image": image,
            "Cmd": command,
            "HostConfig": {
                "Init": True,
                "Memory": 32 << 20,
                "PidsLimit": 64,
                "RestartPolicy": {"Name": "unless-stopped"},
            },
        }
        created = await self._call("POST", f"/containers/create?name={name}", body)
        await self._call("POST", f"/containers/{created['Id']}/start")
        container_id: str = created["Id"]
        return container_id

    async def remove(self, container_id: str) -> None:
        await self._call("DELETE", f"/containers/{container_id}?force=1")

    async def run_many(
        self, names: list[str], image: str, command: list[str], *, at_once: int
    ) -> list[str]:
        slots = asyncio.Semaphore(at_once)

        async def one(name: str) -> str:
            async with slots:
                return await self.run(name, image, command)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(name)) for name in names]
        return [task.result() for task in tasks]

    async def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        async with self._session.request(method, f"http://docker{path}", json=body) as response:
            text = await response.text()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path}: {response.status} {text}")
            found: dict[str, Any] = json.loads(text) if text else {}
            return found
