"""Compose stacks on the Docker Engine.

Compose makes and starts; Docker itself is asked how things are, and told to stop and remove. What would
surprise: a label that changes makes Compose replace a container, so a service that stays the same keeps the
revision and epoch that it was made with. The revision of the stack as a whole is in its record.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from persys.agent.ports import PullWatch
from persys.agent.runtimes import docker_logs
from persys.agent.runtimes.compose_cli import ComposeCli, Project
from persys.agent.runtimes.compose_engine import (
    PROJECT_LABEL,
    Described,
    StackEngine,
    labels_of,
    members,
)
from persys.agent.runtimes.compose_place import StackPlace, StackRecord, write
from persys.agent.runtimes.compose_source import ComposeSource, compose_spec, last_words
from persys.agent.runtimes.docker_engine import Engine, EngineError, as_unavailable
from persys.agent.runtimes.docker_events import container_changes
from persys.agent.runtimes.docker_form import REVISION_LABEL, SERVICE_LABEL, WORKLOAD_LABEL, Owner
from persys.agent.runtimes.docker_pull import Puller
from persys.agent.runtimes.host_ports import is_taken
from persys.core.convergence import Artefact, Condition
from persys.core.fencing import stop_grace_seconds
from persys.core.stack import artefact_of, speaks_for, to_start
from persys.errors import ConflictError, RuntimeUnavailableError
from persys.model.failure import Failure, FailureReason
from persys.model.ids import Revision, WorkloadId
from persys.model.order import Order
from persys.model.spec import ContainerSpec, Port
from persys.model.workload import Desired

UP_DEADLINE_SECONDS = 1800.0  # a service may wait for another one to be healthy, or to end
CREATE_DEADLINE_SECONDS = 600.0
BUILD_DEADLINE_SECONDS = 1700.0
_RUBBLE_LOOKS_MAX = 100
_RUBBLE_LOOK_SECONDS = 0.1
EPOCH_LABEL = "persys.epoch"
HASH_LABEL = "persys.config_hash"
_VOLUME_LABEL = "com.docker.compose.volume"
_NETWORK_LABEL = "com.docker.compose.network"


class ComposeRuntime:
    def __init__(
        self,
        cli: ComposeCli,
        source: ComposeSource,
        engine: Engine,
        owner: Owner,
        *,
        puller: Puller,
        root: Path,
        stop_grace_seconds: int,
    ) -> None:
        self._cli = cli
        self._source = source
        self._engine = engine
        self._owner = owner
        self._stack = StackEngine(engine, owner)
        self._puller = puller
        self._root = root
        self._stop_grace_seconds = stop_grace_seconds

    async def inspect(self, workload_id: WorkloadId) -> Artefact | None:
        found = members(await self._stack.containers(workload_id))
        record = await asyncio.to_thread(self._place(workload_id).applied)
        return artefact_of(
            self._owner.name(workload_id),
            found,
            record.services if record is not None else {},
            revision=record.revision if record is not None else Revision(""),
            commit=record.commit if record is not None else "",
        )

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        place, name = self._place(order.workload_id), self._owner.name(order.workload_id)
        prepared = await self._source.prepare(order, place, name)
        if isinstance(prepared, Failure):
            return prepared
        credential = compose_spec(order).image_credential
        for image, policy in prepared.images.items():
            wanted = ContainerSpec(image, pull_policy=policy, image_credential=credential)
            failure = await self._puller.pull(wanted, watch)
            if failure is not None:
                return failure
        if prepared.is_built:
            project = self._project(name, place, prepared.record)._replace(
                files=(Path(prepared.record.file),)
            )
            return await self._compose(
                project, place, "build", deadline=BUILD_DEADLINE_SECONDS, code="BuildFailed"
            )
        return None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        place, name = self._place(order.workload_id), self._owner.name(order.workload_id)
        if await self._stack.has_stranger(name, order.workload_id):
            text = f"the project {name} has containers that this agent did not make"
            return Failure(FailureReason.RUNTIME_ERROR, text, code="NameTaken")
        record = await self._record(order, place)
        if isinstance(record, Failure):
            return record
        await self._without_rubble(order.workload_id)
        override = await self._override(order, record)
        await asyncio.to_thread(write, place.override, json.dumps(override).encode())
        project = self._project(name, place, record)
        if self._cli.is_old and record.waits:
            await asyncio.to_thread(
                write, place.no_waiting, json.dumps(_no_waiting(record)).encode()
            )
            project = project._replace(files=(*project.files, place.no_waiting))
        failure = await self._compose(
            project,
            place,
            *("up", "--no-start", "--no-build", "--remove-orphans"),
            deadline=CREATE_DEADLINE_SECONDS,
        )
        if failure is None:
            await asyncio.to_thread(place.apply, record)
        return failure

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        place, name = self._place(order.workload_id), self._owner.name(order.workload_id)
        record = await self._record(order, place)
        if isinstance(record, Failure):
            return record
        found = members(await self._without_rubble(order.workload_id))
        if artefact.condition is Condition.PAUSED:
            await self._stack.unpause(
                one.artefact.id for one in found if one.artefact.condition is Condition.PAUSED
            )
        stopped = to_start(found, record.services)
        if stopped is not None:
            try:
                await self._stack.start(one.artefact.id for one in stopped)
            except EngineError as err:
                return await self._why(record, order.workload_id, err.message)
            return None
        failure = await self._compose(
            self._project(name, place, record),
            place,
            *("up", "--detach", "--no-recreate", "--no-build"),
            deadline=UP_DEADLINE_SECONDS,
        )
        if failure is None:
            return None
        after = {one["Id"] for one in await self._stack.containers(order.workload_id)}
        if any(one.artefact.id not in after for one in found):
            raise ConflictError("somebody removed a container meanwhile")
        return await self._why(record, order.workload_id, failure.message)

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        exactly = bool(order.stop_after_seconds)
        grace = stop_grace_seconds(order.spec) if exactly else self._stop_grace_seconds
        found = await self._stack.containers(order.workload_id)
        active = [one for one in found if Condition(one["State"]["Status"]).active]
        try:
            await self._stack.stop(active, grace, exactly=exactly)
        except EngineError as err:
            return Failure(FailureReason.RUNTIME_ERROR, err.message)
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        is_deleted = order.desired is Desired.DELETED and not order.keeps_data
        try:
            found = await self._stack.containers(order.workload_id)
            await self._stack.remove(found, with_volumes=is_deleted)
            await self._stack.remove_networks(order.workload_id)
        except EngineError as err:
            return Failure(FailureReason.RUNTIME_ERROR, err.message)
        return None

    async def discard(self, order: Order) -> Failure | None:
        keeps_data = order.keeps_data or not compose_spec(order).delete_volumes
        try:
            await self._stack.remove_networks(order.workload_id)
            if not keeps_data:
                await self._stack.remove_volumes(order.workload_id)
        except EngineError as err:
            return Failure(FailureReason.STORAGE_ERROR, err.message)
        place = self._place(order.workload_id)
        await asyncio.to_thread(place.discard, keeps_data=keeps_data)
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        try:
            found = await self._engine.call("GET", f"containers/{artefact.id}/json")
            workload_id = WorkloadId(labels_of(found).get(WORKLOAD_LABEL, ""))
            speaker = speaks_for(members(await self._stack.containers(workload_id)), {})
            return await docker_logs.tail(
                self._engine, speaker.artefact.id if speaker is not None else artefact.id
            )
        except (EngineError, RuntimeUnavailableError):
            return ""  # some log drivers keep nothing

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        return container_changes(self._engine, [*self._owner.filters(), PROJECT_LABEL])

    async def ping(self) -> None:
        try:
            await self._engine.call("GET", "info", deadline=3.0)
        except EngineError as err:
            raise as_unavailable(err) from err

    def _place(self, workload_id: WorkloadId) -> StackPlace:
        return StackPlace(self._root, workload_id)

    def _project(self, name: str, place: StackPlace, record: StackRecord) -> Project:
        file = Path(record.file)
        return Project(name, file.parent, place.env_file, (file, place.override))

    async def _record(self, order: Order, place: StackPlace) -> StackRecord | Failure:
        """What the files in place are for; if that is another revision, they are made anew."""
        planned = await asyncio.to_thread(place.planned)
        if planned is not None and planned.revision == order.revision:
            return planned
        name = self._owner.name(order.workload_id)
        prepared = await self._source.prepare(order, place, name)
        return prepared if isinstance(prepared, Failure) else prepared.record

    async def _without_rubble(self, workload_id: WorkloadId) -> list[Described]:
        """Its containers, once those that are being removed are gone: Compose stumbles over them."""
        for _ in range(_RUBBLE_LOOKS_MAX):
            found = await self._stack.containers(workload_id)
            rubble = [one for one in found if one["State"]["Status"] in ("removing", "dead")]
            if not rubble:
                return found
            dead = [one for one in rubble if one["State"]["Status"] == "dead"]
            try:
                await self._stack.remove(dead, with_volumes=False)
            except EngineError as err:
                raise as_unavailable(err) from err
            await asyncio.sleep(_RUBBLE_LOOK_SECONDS)
        raise ConflictError("a container is being removed and does not go away")

    async def _compose(
        self, project: Project, place: StackPlace, *arguments: str, deadline: float, code: str = ""
    ) -> Failure | None:
        try:
            ran = await self._cli.run(project, *arguments, deadline=deadline, lock=place.lock)
        except TimeoutError:
            text = f"compose {arguments[0]} did not end within {deadline:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=code)
        except OSError as err:
            raise RuntimeUnavailableError(f"compose cannot be run: {err.strerror}") from err
        if ran.ok:
            return None
        await self.ping()  # no answer of Docker is no failure of the workload
        return Failure(FailureReason.RUNTIME_ERROR, last_words(ran.err), code=code)

    async def _override(self, order: Order, record: StackRecord) -> dict[str, Any]:
        """A second file that Compose reads: labels for everything, and who restarts it."""
        made = await self._stack.containers(order.workload_id)
        before = {labels_of(one).get(SERVICE_LABEL): labels_of(one) for one in made}
        services = {
            name: self._service(order, hash_, before.get(name, {}))
            for name, hash_ in record.hashes.items()
        }
        networks = await self._stack.networks(order.workload_id)
        volumes = await self._stack.volumes(order.workload_id)
        return {
            "services": services,
            "networks": self._shared(order, record.networks, networks, _NETWORK_LABEL),
            "volumes": self._shared(order, record.volumes, volumes, _VOLUME_LABEL),
        }

    def _service(self, order: Order, hash_: str, before: Mapping[str, str]) -> dict[str, Any]:
        labels = self._labels(order, before if before.get(HASH_LABEL) == hash_ else {})
        service: dict[str, Any] = {"labels": labels | {HASH_LABEL: hash_}}
        if not self._cli.is_old:
            service["pull_policy"] = "never"  # all is here; Compose has no credentials
        if order.stop_after_seconds:
            # Docker would start it after a reboot before the agent could count the silence.
            service |= {"restart": "no", "deploy": {"restart_policy": {"condition": "none"}}}
        return service

    def _shared(
        self, order: Order, names: tuple[str, ...], made: list[Described], label: str
    ) -> dict[str, Any]:
        before = {labels_of(one).get(label): labels_of(one) for one in made}
        return {name: {"labels": self._labels(order, before.get(name, {}))} for name in names}

    def _labels(self, order: Order, before: Mapping[str, str]) -> dict[str, str]:
        return self._owner.labels | {
            WORKLOAD_LABEL: order.workload_id,
            REVISION_LABEL: before.get(REVISION_LABEL, order.revision),
            EPOCH_LABEL: before.get(EPOCH_LABEL, str(order.epoch)),
        }

    async def _why(self, record: StackRecord, workload_id: WorkloadId, message: str) -> Failure:
        """Docker says 500 when a host port is taken, as it does for its own troubles: look who has it."""
        taken = await self._taken_port(record, workload_id)
        if taken is not None:
            text = f"host port {taken.host_port}/{taken.protocol} is taken on this node"
            return Failure(FailureReason.NETWORK_ERROR, text, code="PortTaken")
        return Failure(FailureReason.RUNTIME_ERROR, message)

    async def _taken_port(self, record: StackRecord, workload_id: WorkloadId) -> Port | None:
        try:
            found = await self._engine.call("GET", "containers/json")
        except EngineError as err:
            raise as_unavailable(err) from err
        own: set[tuple[int, str]] = set()
        others: set[tuple[int, str]] = set()
        for one in found:
            mine = self._owner.owns(one.get("Labels") or {}, workload_id)
            for port in one["Ports"]:
                if "PublicPort" in port:
                    (own if mine else others).add((port["PublicPort"], port["Type"]))
        for port in record.ports:
            key = (port.host_port, port.protocol)
            if key in others or (key not in own and is_taken(port)):
                return port
        return None


def _no_waiting(record: StackRecord) -> dict[str, Any]:
    """v1 would wait for what nobody has started yet, also when it is only to create containers."""
    at_once = {"condition": "service_started"}
    return {
        "services": {
            name: {"depends_on": dict.fromkeys(others, at_once)}
            for name, others in record.waits.items()
        }
    }
