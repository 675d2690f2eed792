"""Compose stacks on the Docker Engine.

Compose creates and starts containers. State is read, and containers are stopped and removed, through the
Docker API.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from msgspec.structs import replace

from persys.agent.networks.members import Members
from persys.agent.ports import PullWatch
from persys.agent.runtimes.bind_guard import BindGuard
from persys.agent.runtimes.compose.cgroups import StackCgroups, limits_of
from persys.agent.runtimes.compose.cli import ComposeCli, ComposeCommands, Execution
from persys.agent.runtimes.compose.deviations import (
    compare,
    joined_outside,
    services_without_network,
)
from persys.agent.runtimes.compose.project import (
    PROJECT_LABEL,
    ContainerInfo,
    Override,
    ProjectNames,
    StackResources,
    joining_services,
    labels_of,
    members,
    project_of,
    wait_for_removals,
)
from persys.agent.runtimes.compose.source import ComposeSource, Prepared, compose_spec
from persys.agent.runtimes.compose.state_dir import StackRecord, StackStateDir
from persys.agent.runtimes.docker import exec_logs
from persys.agent.runtimes.docker.deviations import repair_in_place
from persys.agent.runtimes.docker.disk_limits import DiskLimits
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.events import container_changes
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, OwnerLabels, endpoint_config
from persys.agent.runtimes.docker.pull import Puller
from persys.agent.runtimes.docker.start import kill_lost_shim, port_conflict
from persys.agent.volumes.managed import storage_failure
from persys.core.agent.compose_status import ServicePlan, artefact_of, log_source, to_start
from persys.core.agent.deviations import Deviation, Shape
from persys.core.agent.progress import Artefact, Condition
from persys.errors import ConflictError, RuntimeUnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, stop_grace_seconds
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order

log = structlog.get_logger()


class ComposeRuntime:
    def __init__(
        self,
        cli: ComposeCli,
        source: ComposeSource,
        engine: Engine,
        owner: OwnerLabels,
        paths: PathCalls,
        *,
        puller: Puller,
        root: Path,
        stop_grace_seconds: int,
        pids_max: int,
        disk_limits: DiskLimits,
        members: Members | None = None,
    ) -> None:
        """`members` assigns addresses on networks across nodes; None: this node has no networks."""
        self._members = members
        self._source = source
        self._engine = engine
        self._owner = owner
        self._paths = paths
        self._stack = StackResources(engine, owner, paths)
        self._cgroups = StackCgroups(engine, owner, paths)
        self._override = Override(self._stack, owner, self._cgroups, members, is_v1=cli.is_v1)
        self._pids_max = pids_max
        self._disk_limits = disk_limits
        self._commands = ComposeCommands(cli, engine, paths)
        self._binds = BindGuard(engine, paths)
        self._names = ProjectNames(engine, owner)
        self._prepared: dict[WorkloadId, Prepared] = {}
        self._placed: dict[WorkloadId, Prepared] = {}  # whose files are mounted
        self._shapes: dict[WorkloadId, dict[str, Shape]] = {}  # not yet written to disk
        self._puller = puller
        self._root = root
        self._stop_grace_seconds = stop_grace_seconds

    async def inspect(self, order: Order) -> Artefact | None:
        workload_id = order.workload_id
        found = await self._stack.containers(workload_id)
        differing = await self._compare(workload_id, found)
        state_dir = self._state_dir(workload_id)
        record = await self._paths.run(state_dir.root, state_dir.read_applied)
        seen = artefact_of(
            project_of(order, record, found, self._owner),
            members(found, differing),
            _plans(order, record),
            revision=record.revision if record is not None else Revision(""),
            commit=record.commit if record is not None else "",
        )
        if seen is None or record is None or record.revision != order.revision:
            return seen
        await self._limit(order, record)
        problem = self._cgroups.problem(workload_id)
        ids = [str(one["Id"]) for one in found]
        notes = (f"resources are not enforced: {problem}",) if problem else ()
        return replace(
            seen,
            notes=notes + self._disk_limits.notes(order, ids),
            overrun=self._disk_limits.overrun(order, ids),
        )

    async def _limit(self, order: Order, record: StackRecord) -> None:
        """Set the limits of the stack as a whole. Each container has its own limits as well."""
        containers = sum(plan.replicas for plan in record.services.values())
        limits = limits_of(compose_spec(order), max(1, containers) * self._pids_max)
        await self._cgroups.limit(order.workload_id, limits)

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        state_dir, name = self._state_dir(order.workload_id), await self._project(order)
        prepared = await self._prepare(order, state_dir, name, watch.queued)
        if isinstance(prepared, Failure):
            return prepared
        for image, policy in prepared.images.items():
            # The credential is sent only to its own registry.
            credential = await self._puller.credential_for(
                image, compose_spec(order).image_credential
            )
            wanted = ContainerSpec(image, pull_policy=policy, image_credential=credential)
            failure = await self._puller.pull(wanted, watch)
            if failure is not None:
                return failure
        if prepared.is_built:
            stack = Execution(name, state_dir, prepared.document, prepared.variables)
            return await self._commands.build(stack, watch.queued)
        return None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        state_dir, name = self._state_dir(order.workload_id), await self._project(order)
        prepared = await self._checked(order, state_dir)
        if isinstance(prepared, Failure):
            return prepared
        if (failure := await self._names.check(prepared.record, order.workload_id)) is not None:
            return failure
        if (failure := await self._place(order, state_dir, prepared)) is not None:
            return failure
        if (failure := await self._binds.check(prepared.binds)) is not None:
            return failure
        if (failure := await self._reserve(order, prepared)) is not None:
            return failure
        await wait_for_removals(self._stack, order.workload_id)
        await self._limit(order, prepared.record)
        stack = await self._execution(name, state_dir, prepared, order)
        failure = await self._commands.create(stack)
        if failure is None and (services := await self._differing(order, prepared.record)):
            failure = await self._commands.recreate(stack, services, start=False)
        if failure is not None:
            return failure
        try:
            await self._paths.run(state_dir.root, partial(state_dir.write_applied, prepared.record))
        except OSError as err:
            return storage_failure("files of the stack", err)
        return None

    async def _reserve(self, order: Order, prepared: Prepared) -> Failure | None:
        """Assign the addresses of all services that join the networks of the stack."""
        if self._members is None or not order.networks:
            return None
        services = joining_services(prepared.document)
        for name in services:
            if (plan := prepared.record.services.get(name)) is not None and plan.replicas > 1:
                text = (
                    f"service {name} has {plan.replicas} replicas: a service of a stack with "
                    "networks has at most one"
                )
                return Failure(FailureReason.INVALID_SPEC, text, retryable=False)
        return await self._members.reserve(order, services)

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        state_dir = self._state_dir(order.workload_id)
        prepared = await self._checked(order, state_dir)
        if isinstance(prepared, Failure):
            return prepared
        if (failure := await self._place(order, state_dir, prepared)) is not None:
            return failure

        async def start() -> Failure | None:
            return await self._start(order, artefact, prepared)

        return await self._binds.start(prepared.binds, start, partial(self._ids, order))

    async def _ids(self, order: Order) -> list[str]:
        return [str(one["Id"]) for one in await self._stack.containers(order.workload_id)]

    async def _start(self, order: Order, artefact: Artefact, prepared: Prepared) -> Failure | None:
        state_dir, name = self._state_dir(order.workload_id), await self._project(order)
        record = prepared.record
        described = await wait_for_removals(self._stack, order.workload_id)
        found = members(described)
        if artefact.condition is Condition.PAUSED:
            await self._stack.unpause(
                one.artefact.id for one in found if one.artefact.condition is Condition.PAUSED
            )
        stopped = to_start(found, record.services)
        networks = await self._stack.network_ids()
        with parsing_response("a container"):
            without_network = services_without_network(described, networks)
        if stopped is not None and not without_network:
            try:
                await self._stack.start(one.artefact.id for one in stopped)
            except EngineError as err:
                return await self._failure_reason(record, order.workload_id, err.message)
            return None
        stack, failure = await self._execution(name, state_dir, prepared, order), None
        if without_network:
            failure = await self._commands.recreate(stack, without_network, start=False)
        failure = failure or await self._commands.up(stack)
        if failure is None:
            return None
        if await kill_lost_shim(self._paths, failure.message):
            raise ConflictError("Docker lost the start of a container; the stale process was ended")
        after = {one["Id"] for one in await self._stack.containers(order.workload_id)}
        if any(one.artefact.id not in after for one in found):
            raise ConflictError("a container of the stack was removed during the start")
        return await self._failure_reason(record, order.workload_id, failure.message)

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        exactly = bool(order.stop_after_seconds)
        grace = stop_grace_seconds(order.spec) if exactly else self._stop_grace_seconds
        found = await self._stack.containers(order.workload_id)
        active = [one for one in found if Condition(one["State"]["Status"]).active]
        try:
            await self._stack.stop(active, grace, exactly=exactly)
        except EngineError as err:
            return Failure(FailureReason.RUNTIME_ERROR, err.message)
        return artefact.overrun

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        is_deleted = order.desired is Desired.DELETED and not order.keeps_data
        try:
            found = await self._stack.containers(order.workload_id)
            await self._stack.remove(found, with_volumes=is_deleted)
            await self._stack.remove_networks(order.workload_id)
        except EngineError as err:
            return Failure(FailureReason.RUNTIME_ERROR, err.message)
        return None

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        workload_id = order.workload_id
        found = await self._stack.containers(workload_id)
        differing = await self._compare(workload_id, found)
        shapes = await self._shapes_of(self._state_dir(workload_id), workload_id)
        try:
            for container_id, differs in differing.items():
                if container_id in shapes:
                    await repair_in_place(
                        self._engine,
                        container_id,
                        shapes[container_id],
                        differs,
                        self._endpoint_configs(order, differs[0].part),
                    )
        except EngineError as err:
            return Failure(FailureReason.RUNTIME_ERROR, err.message)
        return None

    def _endpoint_configs(self, order: Order, service: str) -> dict[str, dict[str, Any]]:
        endpoints = self._members.endpoints(order, service) if self._members is not None else []
        return {
            self._owner.network_name(one.network.network_id): endpoint_config(one, service)
            for one in endpoints
        }

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        """Recreate and start the containers of the services that deviate; their volumes stay."""
        state_dir, name = self._state_dir(order.workload_id), await self._project(order)
        prepared = await self._checked(order, state_dir)
        if isinstance(prepared, Failure):
            return prepared
        if (failure := await self._place(order, state_dir, prepared)) is not None:
            return failure
        services = {one.part for one in artefact.deviations if one.cuts_off}

        async def replace() -> Failure | None:
            stack = await self._execution(name, state_dir, prepared, order)
            failure = await self._commands.recreate(stack, services, start=True)
            if failure is None:
                return None
            return await self._failure_reason(prepared.record, order.workload_id, failure.message)

        return await self._binds.start(prepared.binds, replace, partial(self._ids, order))

    async def _execution(
        self, name: str, state_dir: StackStateDir, prepared: Prepared, order: Order
    ) -> Execution:
        document = await self._override.apply_to(prepared, order)
        return Execution(name, state_dir, document, prepared.variables)

    async def discard(self, order: Order) -> Failure | None:
        keeps_data = order.keeps_data or not compose_spec(order).delete_volumes
        try:
            await self._stack.remove_networks(order.workload_id)
            if not keeps_data:
                await self._stack.remove_volumes(order.workload_id)
        except EngineError as err:
            return Failure(FailureReason.STORAGE_ERROR, err.message)
        self._prepared.pop(order.workload_id, None)
        self._placed.pop(order.workload_id, None)
        self._shapes.pop(order.workload_id, None)
        await self._cgroups.remove(order.workload_id)
        state_dir = self._state_dir(order.workload_id)
        try:
            discard = partial(state_dir.discard, keeps_data=keeps_data)
            await self._paths.run(state_dir.root, discard, deadline_seconds=LONG_SECONDS)
        except OSError as err:
            return storage_failure("files of the stack", err)
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        try:
            found = await self._engine.call("GET", f"containers/{artefact.id}/json")
            with parsing_response(artefact.id):
                workload_id = WorkloadId(labels_of(found).get(WORKLOAD_LABEL, ""))
            source = log_source(members(await self._stack.containers(workload_id)), {})
            return await exec_logs.tail(
                self._engine, source.artefact.id if source is not None else artefact.id
            )
        except (EngineError, RuntimeUnavailableError):
            return ""  # some log drivers store nothing

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        return container_changes(self._engine, [*self._owner.filters(), PROJECT_LABEL])

    async def ping(self) -> None:
        try:
            await self._engine.call("GET", "info", deadline=3.0)
        except EngineError as err:
            raise as_unavailable(err) from err

    async def _differing(self, order: Order, record: StackRecord) -> set[str]:
        """Services with an existing container that deviates from its recorded shape."""
        found = await self._stack.containers(order.workload_id)
        differing = await self._compare(order.workload_id, found)
        return {one.part for each in differing.values() for one in each} & set(record.services)

    async def _compare(
        self, workload_id: WorkloadId, found: list[ContainerInfo]
    ) -> dict[str, tuple[Deviation, ...]]:
        """Deviations of the running containers from their recorded shapes, by container id."""
        state_dir = self._state_dir(workload_id)
        shapes = await self._shapes_of(state_dir, workload_id)
        with parsing_response("a container"):
            gone = {one for one in joined_outside(found) if not await self._stack.exists(one)}
            compared = compare(found, shapes, gone=gone)
        if compared.shapes != shapes or workload_id in self._shapes:
            await self._store_shapes(state_dir, workload_id, compared.shapes)
        return compared.deviations

    async def _shapes_of(
        self, state_dir: StackStateDir, workload_id: WorkloadId
    ) -> dict[str, Shape]:
        if workload_id in self._shapes:
            return self._shapes[workload_id]
        return await self._paths.run(state_dir.root, state_dir.read_shapes)

    async def _store_shapes(
        self, state_dir: StackStateDir, workload_id: WorkloadId, shapes: dict[str, Shape]
    ) -> None:
        """Store the shapes. They stay in memory if the write fails: a full disk must not stop a stack."""
        try:
            await self._paths.run(state_dir.root, partial(state_dir.write_shapes, shapes))
        except (OSError, PathTimeoutError) as err:
            if workload_id not in self._shapes:
                log.warning("stack.shapes_not_kept", workload_id=workload_id, reason=str(err))
            self._shapes[workload_id] = shapes
        else:
            self._shapes.pop(workload_id, None)

    async def _project(self, order: Order) -> str:
        state_dir = self._state_dir(order.workload_id)
        record = await self._paths.run(state_dir.root, state_dir.read_applied)
        found = await self._stack.containers(order.workload_id) if record is None else []
        return project_of(order, record, found, self._owner)

    def _state_dir(self, workload_id: WorkloadId) -> StackStateDir:
        return StackStateDir(self._root, workload_id)

    async def _checked(self, order: Order, state_dir: StackStateDir) -> Prepared | Failure:
        """The checked document of this revision. It is prepared again after an agent restart.

        A git stack is prepared from the commit in the private repository, never from mounted files.
        """
        known = self._prepared.get(order.workload_id)
        if known is not None and known.record.revision == order.revision:
            return known
        return await self._prepare(order, state_dir, await self._project(order), _ignore_progress)

    async def _place(
        self, order: Order, state_dir: StackStateDir, prepared: Prepared
    ) -> Failure | None:
        """Update the mounted files, once per prepared document."""
        if self._placed.get(order.workload_id) is prepared:
            return None
        failure = await self._source.place(prepared, state_dir)
        if failure is None:
            self._placed[order.workload_id] = prepared
        return failure

    async def _prepare(
        self, order: Order, state_dir: StackStateDir, name: str, queued: Callable[[str], None]
    ) -> Prepared | Failure:
        prepared = await self._source.prepare(order, state_dir, name, queued)
        self._prepared.pop(order.workload_id, None)
        if isinstance(prepared, Prepared):
            self._prepared[order.workload_id] = prepared
        return prepared

    async def _failure_reason(
        self, record: StackRecord, workload_id: WorkloadId, message: str
    ) -> Failure:
        taken = await port_conflict(self._engine, self._owner, workload_id, record.ports)
        return taken or Failure(FailureReason.RUNTIME_ERROR, message)


def _plans(order: Order, record: StackRecord | None) -> dict[str, ServicePlan]:
    """The services of a stack that runs once end with their first exit, whatever the Compose file says."""
    if record is None:
        return {}
    if not order.run_once:
        return record.services
    return {
        name: replace(plan, restart=RestartPolicy("no")) for name, plan in record.services.items()
    }


def _ignore_progress(_failure_reason: str) -> None:
    """Queue progress is reported during a pull only."""
