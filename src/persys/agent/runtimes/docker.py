"""Containers on the Docker Engine. It touches only those that carry its own cluster and node."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from pathlib import Path

from persys.agent.bind_guard import BindGuard
from persys.agent.files import ContainerFiles
from persys.agent.host_paths import HostBind
from persys.agent.policy import NodePolicy
from persys.agent.ports import PullWatch
from persys.agent.runtimes import docker_logs
from persys.agent.runtimes.docker_engine import Engine, EngineError, as_unavailable
from persys.agent.runtimes.docker_events import container_changes
from persys.agent.runtimes.docker_form import (
    WORKLOAD_LABEL,
    Owner,
    artefact,
    container_spec,
    create_body,
)
from persys.agent.runtimes.docker_pull import Puller, image_not_found
from persys.agent.runtimes.docker_start import START_DEADLINE_SECONDS, start_container
from persys.agent.runtimes.host_ports import port_taken
from persys.core.convergence import Artefact, Condition
from persys.core.fencing import stop_grace_seconds
from persys.errors import ConflictError, RuntimeUnavailableError
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.workload import Desired

REMOVE_DEADLINE_SECONDS = 60.0
STOP_MARGIN_SECONDS = 20.0


class DockerRuntime:
    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        *,
        puller: Puller,
        files: ContainerFiles,
        policy: NodePolicy,
        stop_grace_seconds: int,
        pids_max: int,
    ) -> None:
        self._engine = engine
        self._puller = puller
        self._owner = owner
        self._files = files
        self._policy = policy
        self._binds = BindGuard(engine)
        self._stop_grace_seconds = stop_grace_seconds
        self._pids_max = pids_max

    async def inspect(self, workload_id: WorkloadId) -> Artefact | None:
        found = await self._fetch(self._owner.name(workload_id), workload_id)
        if found is not None:
            return found
        for name in await self._fetch_ids(workload_id):  # somebody may have renamed it
            found = await self._fetch(name, workload_id)
            if found is not None:
                return found
        return None

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        return await self._puller.pull(container_spec(order), watch)

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        name = self._owner.name(order.workload_id)
        if (failure := await self._binds.check(self._host_binds(order))) is not None:
            return failure
        try:
            await asyncio.to_thread(self._files.write, order)
        except OSError as err:
            return _no_files(err)
        files = self._files.paths(order)
        body = create_body(order, self._owner, volumes, files=files, pids_max=self._pids_max)
        try:
            await self._engine.call(
                "POST",
                "containers/create",
                params={"name": name},
                body=body,
                deadline=START_DEADLINE_SECONDS,
            )
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return image_not_found(err.message)
            if err.status == HTTPStatus.CONFLICT:
                return await self._who_has(name, order.workload_id)
            return _failure(err, FailureReason.RUNTIME_ERROR)
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        try:
            await asyncio.to_thread(self._files.restore, order)
        except OSError as err:
            return _no_files(err)
        if artefact.condition is Condition.PAUSED:
            return await self._start(order, artefact, "unpause")

        async def start() -> Failure | None:
            return await self._start(order, artefact, "start")

        async def containers() -> list[str]:
            return [artefact.id]

        return await self._binds.start(self._host_binds(order), start, containers)

    def _host_binds(self, order: Order) -> list[HostBind]:
        mounts = container_spec(order).volumes
        return [self._policy.bind(mount.host_path, mount.container_path) for mount in mounts]

    async def _start(self, order: Order, artefact: Artefact, deed: str) -> Failure | None:
        try:
            await start_container(self._engine, artefact.id, deed)
        except EngineError as err:
            if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise ConflictError(err.message) from err
            taken = await self._taken_port(order) if err.status >= 500 else None
            return taken or _failure(err, FailureReason.RUNTIME_ERROR)
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        grace = container_spec(order).stop_grace_seconds or self._stop_grace_seconds
        if order.stop_after_seconds:
            grace = stop_grace_seconds(order.spec)
        try:
            await self._engine.call(
                "POST",
                f"containers/{artefact.id}/stop",
                params={"t": str(grace)},
                deadline=grace + STOP_MARGIN_SECONDS,
            )
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return None
            return _failure(err, FailureReason.RUNTIME_ERROR)
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        # The image's own volumes hold data too: only an explicit delete removes them.
        with_volumes = order.desired is Desired.DELETED
        try:
            await self._engine.call(
                "DELETE",
                f"containers/{artefact.id}",
                params={"force": "true", "v": str(with_volumes).lower()},
                deadline=REMOVE_DEADLINE_SECONDS,
            )
        except EngineError as err:
            if err.status == HTTPStatus.CONFLICT:
                return await self._until_gone(artefact, order.workload_id)
            if err.status != HTTPStatus.NOT_FOUND:
                return _failure(err, FailureReason.RUNTIME_ERROR)
        return None

    async def discard(self, order: Order) -> Failure | None:
        """Nothing else is left of a container that was removed."""
        try:
            await asyncio.to_thread(self._files.remove, order.workload_id)
        except OSError as err:
            return _no_files(err)
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        try:
            return await docker_logs.tail(self._engine, artefact.id)
        except EngineError:
            return ""  # some log drivers keep nothing

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        return container_changes(self._engine, self._owner.filters())

    async def ping(self) -> None:
        try:
            await self._engine.call("GET", "info", deadline=3.0)
        except EngineError as err:
            raise as_unavailable(err) from err

    async def _fetch(self, name: str, workload_id: WorkloadId) -> Artefact | None:
        try:
            found = await self._engine.call("GET", f"containers/{name}/json")
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return None
            raise as_unavailable(err) from err
        try:
            labels = found["Config"].get("Labels") or {}
            return artefact(found) if self._owner.owns(labels, workload_id) else None
        except (KeyError, TypeError, ValueError) as err:
            raise RuntimeUnavailableError(f"docker describes {name} in unknown words") from err

    async def _fetch_ids(self, workload_id: WorkloadId) -> list[str]:
        filters = {"label": self._owner.filters(**{WORKLOAD_LABEL: workload_id})}
        params = {"all": "true", "filters": json.dumps(filters)}
        try:
            found = await self._engine.call("GET", "containers/json", params=params)
        except EngineError as err:
            raise as_unavailable(err) from err
        return [container["Id"] for container in found]

    async def _who_has(self, name: str, workload_id: WorkloadId) -> Failure:
        if await self.inspect(workload_id) is None:
            text = f"the name {name} belongs to a container that this agent did not make"
            return Failure(FailureReason.RUNTIME_ERROR, text, code="NameTaken")
        raise ConflictError(f"container {name} has appeared")

    async def _taken_port(self, order: Order) -> Failure | None:
        ports = container_spec(order).ports
        return await port_taken(self._engine, self._owner, order.workload_id, ports)

    async def _until_gone(self, artefact: Artefact, workload_id: WorkloadId) -> Failure | None:
        """Somebody else is removing it."""
        for _ in range(100):
            if await self._fetch(artefact.id, workload_id) is None:
                return None
            await asyncio.sleep(0.1)
        text = f"container {artefact.name} is being removed and does not go away"
        return Failure(FailureReason.RUNTIME_ERROR, text)


def _no_files(err: OSError) -> Failure:
    text = f"files of the container: {err.filename}: {err.strerror}"
    return Failure(FailureReason.STORAGE_ERROR, text)


def _failure(err: EngineError, reason: FailureReason) -> Failure:
    if err.status == HTTPStatus.BAD_REQUEST:
        return Failure(FailureReason.INVALID_SPEC, err.message, retryable=False)
    return Failure(reason, err.message)
