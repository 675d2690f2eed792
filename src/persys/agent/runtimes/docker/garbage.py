"""Lists everything that this agent created in Docker, and removes single items for garbage collection.

Items are found by the labels of cluster and node, so items of others are never listed. Data is kept: a
container is removed without its volumes, and volumes are not listed.
"""

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from persys.agent.journal.records import Image
from persys.agent.runtimes.docker.config_files import ContainerFiles
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import NETWORK_LABEL, WORKLOAD_LABEL, OwnerLabels
from persys.core.agent.garbage import ImageUse, Item, Kind
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls
from persys.model.ids import WorkloadId

REMOVE_DEADLINE_SECONDS = 60.0
# "": a network has no state.
_NOT_RUNNING = ("", "created", "exited", "dead")


class DockerGarbage:
    """Implements agent.ports.GarbageSource."""

    def __init__(
        self, engine: Engine, owner: OwnerLabels, files: ContainerFiles, paths: PathCalls
    ) -> None:
        self._engine = engine
        self._files = files
        self._paths = paths
        self._owner = owner

    async def inventory(self) -> list[Item]:
        filters = {"filters": json.dumps({"label": self._owner.filters()})}
        containers = await self._list("containers/json", {"all": "true", **filters})
        networks = await self._list("networks", filters)
        with parsing_response("containers and networks"):
            found = [
                _item(Kind.CONTAINER, one, one["Names"][0].removeprefix("/")) for one in containers
            ]
            # Networks across nodes have no workload; `agent/networks` removes them.
            found += [
                _item(Kind.NETWORK, one, one["Name"])
                for one in networks
                if NETWORK_LABEL not in (one.get("Labels") or {})
            ]
        needed = {item.workload_id for item in found if item.kind is Kind.CONTAINER}
        return found + [
            Item(Kind.FILES, f"files:{owner}", str(path), owner, running=owner in needed)
            for owner, path in (await self._owners_of_files()).items()
        ]

    async def _owners_of_files(self) -> dict[WorkloadId, Path]:
        try:
            return await self._paths.run(self._files.root, self._files.owners)
        except OSError as err:
            raise RuntimeUnavailableError(f"files of containers: {err}") from err

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        """Images whose tag still points to the fetched id. Any container on the node counts as a user."""
        listed = await self._list("containers/json", {"all": "true"})
        with parsing_response("containers"):
            used = {one["ImageID"] for one in listed}
        return [
            ImageUse(Item(Kind.IMAGE, image.id, image.name), image.id in used, image.used_at)
            for image in fetched.values()
            if await self._id(image.name) == image.id
        ]

    async def remove(self, item: Item) -> str:
        """Remove an item. Returns "" or the reason why it remains. Raises RuntimeUnavailableError."""
        if item.kind is Kind.FILES:
            return await self._remove_files(item)
        path, params = {
            Kind.CONTAINER: (f"containers/{item.id}", {"force": "true", "v": "false"}),
            Kind.NETWORK: (f"networks/{item.id}", {}),
            # By name, so that other tags of the image stay. Docker keeps an image that is in use.
            Kind.IMAGE: (f"images/{item.name}", {}),
        }[item.kind]
        try:
            await self._engine.call("DELETE", path, params=params, deadline=REMOVE_DEADLINE_SECONDS)
        except EngineError as err:
            return "" if err.status == HTTPStatus.NOT_FOUND else err.message
        return ""

    async def _remove_files(self, item: Item) -> str:
        remove = partial(self._files.remove, item.workload_id)
        directory = self._files.directory(item.workload_id)
        try:
            await self._paths.run(directory, remove, deadline_seconds=LONG_SECONDS)
        except OSError as err:
            return f"{err.filename}: {err.strerror}"
        return ""

    async def _list(self, path: str, params: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = await self._engine.call("GET", path, params=params)
        except EngineError as err:
            raise as_unavailable(err) from err
        return found

    async def _id(self, image: str) -> str:
        try:
            found = await self._engine.call("GET", f"images/{image}/json")
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return ""
            raise as_unavailable(err) from err
        with parsing_response(image):
            return str(found["Id"])


def _item(kind: Kind, described: Mapping[str, Any], name: str) -> Item:
    workload_id = (described.get("Labels") or {}).get(WORKLOAD_LABEL, "")
    running = described.get("State", "") not in _NOT_RUNNING
    return Item(kind, described["Id"], name, WorkloadId(workload_id), running)
