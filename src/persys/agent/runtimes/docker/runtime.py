"""Containers on the Docker Engine. Only containers with the labels of this cluster and node are changed."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from persys.agent.networks.members import Endpoint, Members
from persys.agent.ports import PullWatch
from persys.agent.runtimes.bind_guard import BindGuard
from persys.agent.runtimes.docker import exec_logs
from persys.agent.runtimes.docker.config_files import ContainerFiles
from persys.agent.runtimes.docker.deviations import connect, repair_in_place
from persys.agent.runtimes.docker.disk_limits import DiskLimits
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.events import SeenContainers, container_events
from persys.agent.runtimes.docker.mapping import (
    WORKLOAD_LABEL,
    OwnerLabels,
    artefact,
    container_spec,
    create_body,
    deviations_of,
    endpoint_config,
    wanted_shape,
)
from persys.agent.runtimes.docker.pull import Puller, image_not_found
from persys.agent.runtimes.docker.start import (
    START_DEADLINE_SECONDS,
    port_conflict,
    start_container,
)
from persys.agent.runtimes.host_paths import HostBind
from persys.agent.volumes.managed import storage_failure
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.progress import Artefact, Condition
from persys.errors import ConflictError
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.spec import stop_grace_seconds
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order

REMOVE_DEADLINE_SECONDS = 60.0
STOP_MARGIN_SECONDS = 20.0


class DockerRuntime:
    def __init__(
        self,
        engine: Engine,
        owner: OwnerLabels,
        *,
        puller: Puller,
        files: ContainerFiles,
        paths: PathCalls,
        policy: NodePolicy,
        stop_grace_seconds: int,
        pids_max: int,
        disk_limits: DiskLimits,
        members: Members | None = None,
    ) -> None:
        """`members` assigns addresses on networks across nodes; None: this node has no networks."""
        self._engine = engine
        self._puller = puller
        self._owner = owner
        self._files = files
        self._paths = paths
        self._policy = policy
        self._binds = BindGuard(engine, paths)
        self._stop_grace_seconds = stop_grace_seconds
        self._pids_max = pids_max
        self._disk_limits = disk_limits
        self._members = members
        self._seen = SeenContainers()
        # Containers that were created and not inspected since: their state is known.
        self._created: dict[WorkloadId, Artefact] = {}
        self._limits_layers: bool | None = (
            None  # whether the storage driver supports a size; None: not tried
        )

    async def inspect(self, order: Order) -> Artefact | None:
        created = self._created.pop(order.workload_id, None)
        # What was not inspected is never a reason to stop or to remove something.
        if order.desired is Desired.RUNNING:
            if created is not None and created.revision == order.revision:
                return created
            if self._seen.is_absent(order.workload_id):
                return None
        event_count = self._seen.event_count
        found = await self._find(order.workload_id)
        if found is None:
            self._seen.remove(order.workload_id)
            return None
        with parsing_response("a container"):
            seen = artefact(found)
            self._seen.inspected(seen, event_count=event_count)
            if seen.condition is not Condition.RUNNING or seen.revision != order.revision:
                return seen
            wanted = wanted_shape(found, order, self._owner)
            return replace(
                seen,
                deviations=deviations_of(found, wanted),
                overrun=self._disk_limits.overrun(order, [seen.id]),
                notes=self._disk_limits.notes(order, [seen.id]),
            )

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        return await self._puller.pull(container_spec(order), watch)

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        name = self._owner.name(order.workload_id)
        if (failure := await self._binds.check(self._host_binds(order))) is not None:
            return failure
        if self._files.may_have(order) and (
            failure := await self._with_files(order, partial(self._files.write, order))
        ):
            return failure
        if self._members is not None and (failure := await self._members.reserve(order)):
            return failure
        body = create_body(
            order,
            self._owner,
            volumes,
            files=self._files.paths(order),
            pids_max=self._pids_max,
            endpoints=self._endpoints(order),
        )
        self._seen.add(order.workload_id)
        try:
            container_id = await self._create(name, body, container_spec(order).disk_gb)
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return image_not_found(err.message)
            if err.status == HTTPStatus.CONFLICT:
                return await self._name_conflict(name, order.workload_id)
            return _failure(err, FailureReason.RUNTIME_ERROR)
        self._created[order.workload_id] = Artefact(
            container_id, name, Condition.CREATED, order.revision, image=body["Image"]
        )
        return None

    async def _create(self, name: str, body: dict[str, Any], disk_gb: int) -> str:
        """Create with a size limit, or without if the storage driver does not support it. EngineError."""

        async def create(body: dict[str, Any]) -> str:
            answer = await self._engine.call(
                "POST",
                "containers/create",
                params={"name": name},
                body=body,
                deadline=START_DEADLINE_SECONDS,
            )
            with parsing_response(name):
                return str(answer["Id"])

        if not disk_gb or self._limits_layers is False:
            return await create(body)
        limited = {**body["HostConfig"], "StorageOpt": {"size": f"{disk_gb}G"}}
        try:
            container_id = await create({**body, "HostConfig": limited})
        except EngineError as err:
            if self._limits_layers or err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            container_id = await create(body)
            self._limits_layers = False
        else:
            self._limits_layers = True
        return container_id

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        if self._files.paths(order) and (
            failure := await self._with_files(order, partial(self._files.restore, order))
        ):
            return failure
        if artefact.condition is Condition.PAUSED:
            return await self._start(order, artefact, "unpause")
        if order.networks and (failure := await self._join(order, artefact)):
            return failure

        async def start() -> Failure | None:
            return await self._start(order, artefact, "start")

        async def containers() -> list[str]:
            return [artefact.id]

        return await self._binds.start(self._host_binds(order), start, containers)

    def _endpoints(self, order: Order) -> list[Endpoint]:
        return self._members.endpoints(order) if self._members is not None else []

    def _endpoint_configs(self, order: Order) -> dict[str, dict[str, Any]]:
        return {
            self._owner.network_name(one.network.network_id): endpoint_config(
                one, order.workload_id
            )
            for one in self._endpoints(order)
        }

    async def _join(self, order: Order, artefact: Artefact) -> Failure | None:
        """Connect a container that is not started yet to those of its networks that it has not joined."""
        found = await self._fetch(artefact.id, order.workload_id)
        if found is None:
            raise ConflictError(f"container {artefact.name} is gone")
        with parsing_response("a container"):
            joined = set(found["NetworkSettings"].get("Networks") or {})
        for name, config in self._endpoint_configs(order).items():
            if name in joined:
                continue
            try:
                await connect(self._engine, artefact.id, name, config)
            except EngineError as err:
                return _failure(err, FailureReason.NETWORK_ERROR)
        return None

    async def _with_files(self, order: Order, call: Callable[[], None]) -> Failure | None:
        try:
            await self._paths.run(self._files.directory(order.workload_id), call)
        except OSError as err:
            return storage_failure("files of the container", err)
        return None

    def _host_binds(self, order: Order) -> list[HostBind]:
        mounts = container_spec(order).volumes
        return [self._policy.bind(mount.host_path, mount.container_path) for mount in mounts]

    async def _start(self, order: Order, artefact: Artefact, verb: str) -> Failure | None:
        try:
            await start_container(self._engine, self._paths, artefact.id, verb)
        except EngineError as err:
            if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise ConflictError(err.message) from err
            taken = await self._port_conflict(order) if err.status >= 500 else None
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
                return artefact.overrun
            return _failure(err, FailureReason.RUNTIME_ERROR)
        return artefact.overrun

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        # Anonymous volumes of the image hold data too: only an explicit delete removes them.
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
                return await self._wait_until_removed(artefact, order.workload_id)
            if err.status != HTTPStatus.NOT_FOUND:
                return _failure(err, FailureReason.RUNTIME_ERROR)
        return None

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        found = await self._fetch(artefact.id, order.workload_id)
        if found is None:
            raise ConflictError(f"container {artefact.name} is gone")
        with parsing_response("a container"):
            wanted = wanted_shape(found, order, self._owner)
        try:
            await repair_in_place(
                self._engine,
                artefact.id,
                wanted,
                artefact.deviations,
                self._endpoint_configs(order),
            )
        except EngineError as err:
            taken = await self._port_conflict(order)
            return taken or Failure(FailureReason.RUNTIME_ERROR, err.message)
        return None

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        """Remove the container; the steps that follow create it again."""
        return await self.stop(order, artefact) or await self.remove(order, artefact)

    async def discard(self, order: Order) -> Failure | None:
        """Remove the config files, the only remains of a removed container."""
        return await self._with_files(order, partial(self._files.remove, order.workload_id))

    async def log_tail(self, artefact: Artefact) -> str:
        try:
            return await exec_logs.tail(self._engine, artefact.id)
        except EngineError:
            return ""  # some log drivers store nothing

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        try:
            async with aclosing(container_events(self._engine, self._owner.filters())) as events:
                async for event in events:
                    if event is None:
                        self._seen.open()
                        self._seen.listed(await self._fetch_workload_ids())
                        yield None
                    elif self._seen.is_news(event):
                        yield event.workload_id
        finally:
            self._seen.close()

    async def ping(self) -> None:
        try:
            await self._engine.call("GET", "info", deadline=3.0)
        except EngineError as err:
            raise as_unavailable(err) from err

    async def _find(self, workload_id: WorkloadId) -> dict[str, Any] | None:
        found = await self._fetch(self._owner.name(workload_id), workload_id)
        if found is not None:
            return found
        for name in await self._fetch_ids(workload_id):  # it may have been renamed
            found = await self._fetch(name, workload_id)
            if found is not None:
                return found
        return None

    async def _fetch(self, name: str, workload_id: WorkloadId) -> dict[str, Any] | None:
        """The inspected container if this agent owns it, otherwise None."""
        try:
            found: dict[str, Any] = await self._engine.call("GET", f"containers/{name}/json")
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return None
            raise as_unavailable(err) from err
        with parsing_response(name):
            labels = found["Config"].get("Labels") or {}
            return found if self._owner.owns(labels, workload_id) else None

    async def _fetch_ids(self, workload_id: WorkloadId) -> list[str]:
        found = await self._list(self._owner.filters(**{WORKLOAD_LABEL: workload_id}))
        with parsing_response(f"the containers of {workload_id}"):
            return [str(container["Id"]) for container in found]

    async def _fetch_workload_ids(self) -> set[WorkloadId]:
        """The workloads that have a container."""
        found = await self._list([*self._owner.filters(), WORKLOAD_LABEL])
        with parsing_response("the containers of workloads"):
            return {WorkloadId(str(one["Labels"][WORKLOAD_LABEL])) for one in found}

    async def _list(self, labels: list[str]) -> Any:
        params = {"all": "true", "filters": json.dumps({"label": labels})}
        try:
            return await self._engine.call("GET", "containers/json", params=params)
        except EngineError as err:
            raise as_unavailable(err) from err

    async def _name_conflict(self, name: str, workload_id: WorkloadId) -> Failure:
        if await self._find(workload_id) is None:
            text = (
                f"container name {name!r} is in use by a container that Persys did not create: "
                "remove or rename that container"
            )
            return Failure(FailureReason.RUNTIME_ERROR, text, code="NameTaken")
        raise ConflictError(f"container {name} already exists")

    async def _port_conflict(self, order: Order) -> Failure | None:
        ports = container_spec(order).ports
        return await port_conflict(self._engine, self._owner, order.workload_id, ports)

    async def _wait_until_removed(
        self, artefact: Artefact, workload_id: WorkloadId
    ) -> Failure | None:
        """Wait until a removal by another process has finished."""
        for _ in range(100):
            if await self._fetch(artefact.id, workload_id) is None:
                return None
            await asyncio.sleep(0.1)
        text = f"Docker has not finished removing container {artefact.name}"
        return Failure(FailureReason.RUNTIME_ERROR, text)


def _failure(err: EngineError, reason: FailureReason) -> Failure:
    if err.status == HTTPStatus.BAD_REQUEST:
        return Failure(FailureReason.INVALID_SPEC, err.message, retryable=False)
    return Failure(reason, err.message)
