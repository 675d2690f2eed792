"""The resources of a stack in Docker, found by the agent's labels, with its project name and its additions.

Stop and remove use the Docker API and not Compose: they must work even if the Compose files have changed.

Compose finds the containers of a project by its name alone. A stack with a name that is already in use would
replace other containers, join their networks and write to their volumes, so such a name is rejected.

`Override` adds labels, cgroup parent, pull and restart policy to a stack's document. Compose replaces a
container when a label changes. An unchanged service therefore keeps the revision and epoch labels of its
existing container. The revision of the stack as a whole is in its record.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from msgspec.structs import replace

from persys.agent.networks.members import Members
from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.cgroups import StackCgroups
from persys.agent.runtimes.compose.document import Document
from persys.agent.runtimes.compose.source import Prepared, compose_spec
from persys.agent.runtimes.compose.state_dir import StackRecord
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import (
    REVISION_LABEL,
    SERVICE_LABEL,
    WORKLOAD_LABEL,
    OwnerLabels,
    artefact,
)
from persys.agent.runtimes.docker.start import start_container
from persys.core.agent.compose_policy import Json
from persys.core.agent.compose_status import ServiceContainer
from persys.core.agent.deviations import Deviation
from persys.core.agent.progress import Condition
from persys.errors import ConflictError
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.spec import RestartPolicy
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order

PROJECT_LABEL = "com.docker.compose.project"
_ONE_OFF_LABEL = "com.docker.compose.oneoff"
_DEPENDS_LABEL = "com.docker.compose.depends_on"
_REMOVE_DEADLINE_SECONDS = 60.0
_STOP_MARGIN_SECONDS = 20.0
_LIST = "containers"
_NO_DEVIATIONS: Mapping[str, tuple[Deviation, ...]] = {}
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)

ContainerInfo = dict[str, Any]


_POLLS_MAX = 100
_POLL_SECONDS = 0.1
NAME_TAKEN = "NameTaken"
_SHOWN_MAX = 5


_EPOCH_LABEL = "persys.epoch"
_HASH_LABEL = "persys.config_hash"
_VOLUME_LABEL = "com.docker.compose.volume"
_NETWORK_LABEL = "com.docker.compose.network"


class StackResources:
    def __init__(self, engine: Engine, owner: OwnerLabels, paths: PathCalls) -> None:
        self._engine = engine
        self._paths = paths
        self._owner = owner

    async def containers(self, workload_id: WorkloadId) -> list[ContainerInfo]:
        """All containers of the stack, each as the full output of a container inspect."""
        listed = await self._list("containers/json", workload_id, {"all": "true"}, PROJECT_LABEL)
        with parsing_response(_LIST):
            ids = [str(one["Id"]) for one in listed]
        found = [await self._inspect(container_id) for container_id in ids]
        return [one for one in found if one is not None]

    async def networks(self, workload_id: WorkloadId) -> list[ContainerInfo]:
        listed = await self._list("networks", workload_id, {})
        with parsing_response("networks"):
            return [{**one, "Id": str(one["Id"])} for one in listed]

    async def network_ids(self) -> set[str]:
        """Ids of all networks on the node, including those that the agent does not own."""
        found = await self._call("GET", "networks", {})
        with parsing_response("networks"):
            return {str(one["Id"]) for one in found}

    async def volumes(self, workload_id: WorkloadId) -> list[ContainerInfo]:
        listed = await self._list("volumes", workload_id, {})
        with parsing_response("volumes"):
            return [{**one, "Name": str(one["Name"])} for one in listed["Volumes"] or ()]

    async def exists(self, container_id: str) -> bool:
        return await self._inspect(container_id) is not None

    async def start(self, ids: Iterable[str]) -> None:
        """Raises EngineError."""
        for container_id in ids:
            await start_container(self._engine, self._paths, container_id)

    async def unpause(self, ids: Iterable[str]) -> None:
        for container_id in ids:
            await self._call_unless_gone("POST", f"containers/{container_id}/unpause", {}, 20.0)

    async def stop(self, found: list[ContainerInfo], grace_seconds: int, *, exactly: bool) -> None:
        """Stop containers that no other depends on first. Raises EngineError.

        `exactly`: use `grace_seconds` even if the Compose file sets a stop timeout.
        """
        waiting = {one["Id"]: one for one in found}
        while waiting:
            layer = _without_dependents(list(waiting.values()))
            try:
                async with asyncio.TaskGroup() as group:
                    for one in layer:
                        group.create_task(self._stop(one, grace_seconds, exactly))
            except ExceptionGroup as errors:
                raise errors.exceptions[
                    0
                ] from errors  # one error is enough: the worker inspects again
            for one in layer:
                del waiting[one["Id"]]

    async def remove(self, found: list[ContainerInfo], *, with_volumes: bool) -> None:
        params = {"force": "true", "v": str(with_volumes).lower()}
        for one in found:
            await self._call_unless_gone("DELETE", f"containers/{one['Id']}", params)

    async def remove_networks(self, workload_id: WorkloadId) -> None:
        for one in await self.networks(workload_id):
            await self._call_unless_gone("DELETE", f"networks/{one['Id']}", {})

    async def remove_volumes(self, workload_id: WorkloadId) -> None:
        for one in await self.volumes(workload_id):
            await self._call_unless_gone("DELETE", f"volumes/{one['Name']}", {})

    async def _stop(self, one: ContainerInfo, grace_seconds: int, exactly: bool) -> None:
        stop_timeout = one["Config"].get("StopTimeout")
        grace = grace_seconds if exactly or stop_timeout is None else int(stop_timeout)
        path, params = f"containers/{one['Id']}/stop", {"t": str(grace)}
        await self._call_unless_gone("POST", path, params, grace + _STOP_MARGIN_SECONDS)

    async def _call_unless_gone(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        deadline: float = _REMOVE_DEADLINE_SECONDS,
    ) -> None:
        try:
            await self._engine.call(method, path, params=params, deadline=deadline)
        except EngineError as err:
            if err.status != HTTPStatus.NOT_FOUND:
                raise

    async def _list(
        self, path: str, workload_id: WorkloadId, params: Mapping[str, str], *labels: str
    ) -> Any:
        wanted = [*self._owner.filters(**{WORKLOAD_LABEL: workload_id}), *labels]
        return await self._call("GET", path, {**params, "filters": json.dumps({"label": wanted})})

    async def _call(self, method: str, path: str, params: Mapping[str, str]) -> Any:
        try:
            return await self._engine.call(method, path, params=params)
        except EngineError as err:
            raise as_unavailable(err) from err

    async def _inspect(self, container_id: str) -> ContainerInfo | None:
        try:
            found: ContainerInfo = await self._engine.call("GET", f"containers/{container_id}/json")
        except EngineError as err:
            if err.status in _GONE:
                return None
            raise as_unavailable(err) from err
        with parsing_response(container_id):
            return _checked(found)


def _checked(found: ContainerInfo) -> ContainerInfo:
    """Check the fields that all callers read. Raises KeyError, TypeError, ValueError."""
    Condition(found["State"]["Status"])
    if not isinstance(found["Config"], dict) or not isinstance(found["Id"], str):
        raise TypeError("not a container")
    return found


def labels_of(described: ContainerInfo) -> dict[str, str]:
    labels: dict[str, str] | None = described.get("Labels") or described["Config"].get("Labels")
    return labels or {}


def members(
    found: list[ContainerInfo], differing: Mapping[str, tuple[Deviation, ...]] = _NO_DEVIATIONS
) -> list[ServiceContainer]:
    """Containers of services, without one-off runs. `differing`: deviations by container id."""
    with parsing_response("a container"):
        return [
            _member(one, differing.get(one["Id"], ()))
            for one in found
            if labels_of(one).get(_ONE_OFF_LABEL, "").lower() != "true"
        ]


def _member(one: ContainerInfo, differs: tuple[Deviation, ...]) -> ServiceContainer:
    policy = one["HostConfig"]["RestartPolicy"]
    restart = RestartPolicy(policy["Name"] or "no", policy["MaximumRetryCount"])
    seen = replace(artefact(one), deviations=differs)
    return ServiceContainer(labels_of(one).get(SERVICE_LABEL, ""), seen, restart)


def _without_dependents(found: list[ContainerInfo]) -> list[ContainerInfo]:
    """Containers that no other depends on; all if Compose set no dependency labels."""
    needed = {
        dependency.partition(":")[0]
        for one in found
        for dependency in labels_of(one).get(_DEPENDS_LABEL, "").split(",")
    }
    free = [one for one in found if labels_of(one).get(SERVICE_LABEL) not in needed]
    return free or found


async def wait_for_removals(stack: StackResources, workload_id: WorkloadId) -> list[ContainerInfo]:
    """The containers of the stack after pending removals have finished. Raises ConflictError."""
    for _ in range(_POLLS_MAX):
        found = await stack.containers(workload_id)
        leaving = [one for one in found if one["State"]["Status"] in ("removing", "dead")]
        if not leaving:
            return found
        dead = [one for one in leaving if one["State"]["Status"] == "dead"]
        try:
            await stack.remove(dead, with_volumes=False)
        except EngineError as err:
            raise as_unavailable(err) from err
        await asyncio.sleep(_POLL_SECONDS)
    raise ConflictError("Docker has not finished removing a container of the stack")


def project_of(
    order: Order, record: StackRecord | None, found: Sequence[ContainerInfo], owner: OwnerLabels
) -> str:
    """The project name, which does not change until deletion. `found`: its containers if `record` is None."""
    if record is not None:
        return record.project or owner.name(order.workload_id)
    for one in found:
        if project := labels_of(one).get(PROJECT_LABEL):
            return project
    spec = compose_spec(order)
    named = "" if spec.project_derived else spec.project_name
    return named or owner.name(order.workload_id)


class ProjectNames:
    def __init__(self, engine: Engine, owner: OwnerLabels) -> None:
        self._engine = engine
        self._owner = owner

    async def check(self, record: StackRecord, workload_id: WorkloadId) -> Failure | None:
        """Fail if resources of others use this project name. Raises RuntimeUnavailableError."""
        project = record.project
        containers = await self._list("containers/json", {"all": "true"})
        with parsing_response("containers"):
            of_project = [one for one in _named(containers) if _is_of(project, one)]
            foreign = self._foreign("container", of_project, workload_id)
        if foreign or not of_project:
            # If the stack has containers, the volumes and networks of the project are its own.
            foreign += await self._foreign_data(record, workload_id)
        if not foreign:
            return None
        more = f" and {len(foreign) - _SHOWN_MAX} more" if len(foreign) > _SHOWN_MAX else ""
        text = (
            f"project name {project!r} is in use on this node by {', '.join(foreign[:_SHOWN_MAX])}"
            f"{more}: choose another project_name, or remove them"
        )
        return Failure(FailureReason.RUNTIME_ERROR, text, code=NAME_TAKEN)

    async def _foreign_data(self, record: StackRecord, workload_id: WorkloadId) -> list[str]:
        """Volumes and networks of others that have the project label or a name that the project would use."""
        volumes = (await self._list("volumes", {}) or {}).get("Volumes") or ()
        networks = await self._list("networks", {})
        foreign: list[str] = []
        with parsing_response("volumes and networks"):
            for kind, listed, wanted in (
                ("volume", volumes, record.volumes),
                ("network", networks, record.networks),
            ):
                names = {f"{record.project}_{name}" for name in wanted}
                of_project = [
                    one for one in listed if _is_of(record.project, one) or one["Name"] in names
                ]
                foreign += self._foreign(kind, of_project, workload_id)
        return foreign

    def _foreign(
        self, kind: str, listed: Sequence[Mapping[str, Any]], workload_id: WorkloadId
    ) -> list[str]:
        found = []
        for one in listed:
            labels = one.get("Labels") or {}
            if self._owner.owns(labels, workload_id):
                continue
            owner = labels.get(WORKLOAD_LABEL)
            whose = f" of workload {owner}" if owner else ", which Persys did not create"
            found.append(f"{kind} {one['Name']}{whose}")
        return found

    async def _list(self, path: str, params: Mapping[str, str]) -> Any:
        try:
            return await self._engine.call("GET", path, params=params)
        except EngineError as err:
            raise as_unavailable(err) from err


def _named(containers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add `Name`: Docker lists several names per container, each with a leading slash."""
    return [{**one, "Name": str(one["Names"][0]).removeprefix("/")} for one in containers]


def _is_of(project: str, one: Mapping[str, Any]) -> bool:
    return bool((one.get("Labels") or {}).get(PROJECT_LABEL) == project)


def joining_services(document: Document) -> list[str]:
    """The services that join the networks of the stack: those without a network of another kind."""
    services = documents.section(document, "services")
    return [name for name, service in services.items() if not service.get("network_mode")]


class Override:
    def __init__(
        self,
        stack: StackResources,
        owner: OwnerLabels,
        cgroups: StackCgroups,
        members: Members | None,
        *,
        is_v1: bool,
    ) -> None:
        """`is_v1`: for Compose v1, which supports fewer options.

        `members` has the addresses on networks across nodes; None: this node has no networks.
        """
        self._members = members
        self._stack = stack
        self._cgroups = cgroups
        self._owner = owner
        self._is_v1 = is_v1

    async def apply_to(self, prepared: Prepared, order: Order) -> Document:
        """The checked document with the agent's additions."""
        override = await self._additions(order, prepared.record)
        services = documents.section(prepared.document, "services")
        for name, service in documents.section(override, "services").items():
            if services.get(name, {}).get("cgroup_parent"):
                service.pop("cgroup_parent", None)  # a privileged stack may choose its own
        document = documents.merged(prepared.document, override)
        if self._members is None or not order.networks:
            return document
        return documents.with_networks(
            document,
            {name: self._endpoints(order, name) for name in joining_services(prepared.document)},
        )

    def _endpoints(self, order: Order, service: str) -> list[documents.Attachment]:
        assert self._members is not None, "only nodes with networks call it"
        return [
            documents.Attachment(
                self._owner.network_name(one.network.network_id), one.address, one.bridge_address
            )
            for one in self._members.endpoints(order, service)
        ]

    async def _additions(self, order: Order, record: StackRecord) -> Document:
        existing = await self._stack.containers(order.workload_id)
        before = {labels_of(one).get(SERVICE_LABEL): one for one in existing}
        parent = await self._cgroups.parent(order.workload_id)
        services: dict[str, Json] = {
            name: self._service(order, hash_, before.get(name), parent)
            for name, hash_ in record.hashes.items()
        }
        networks = await self._stack.networks(order.workload_id)
        volumes = await self._stack.volumes(order.workload_id)
        return {
            "services": services,
            "networks": self._shared(order, record.networks, networks, _NETWORK_LABEL),
            "volumes": self._shared(order, record.volumes, volumes, _VOLUME_LABEL),
        }

    def _service(
        self, order: Order, hash_: str, before: ContainerInfo | None, parent: str
    ) -> dict[str, Json]:
        had = labels_of(before) if before is not None else {}
        stays = before is not None and had.get(_HASH_LABEL) == hash_
        labels = self._labels(order, had if stays else {})
        service: dict[str, Json] = {"labels": {**labels, _HASH_LABEL: hash_}}
        if before is not None and stays:
            # Keep the group: containers of earlier agents have none, and a change would replace them.
            parent = str(before["HostConfig"].get("CgroupParent") or "")
        if parent:
            service["cgroup_parent"] = parent
        if not self._is_v1:
            service["pull_policy"] = (
                "never"  # all images are present, and Compose has no credentials
            )
        if order.stop_after_seconds or order.run_once:
            # After a reboot Docker would start it before the agent knows how long the scheduler is lost, or
            # that it has run already.
            service |= {"restart": "no", "deploy": {"restart_policy": {"condition": "none"}}}
        return service

    def _shared(
        self, order: Order, names: tuple[str, ...], existing: list[ContainerInfo], label: str
    ) -> dict[str, Json]:
        before = {labels_of(one).get(label): labels_of(one) for one in existing}
        return {name: {"labels": self._labels(order, before.get(name, {}))} for name in names}

    def _labels(self, order: Order, before: Mapping[str, str]) -> dict[str, Json]:
        labels = self._owner.labels | {
            WORKLOAD_LABEL: order.workload_id,
            REVISION_LABEL: before.get(REVISION_LABEL, order.revision),
            _EPOCH_LABEL: before.get(_EPOCH_LABEL, str(order.epoch)),
        }
        # Compose expands variables in every value.
        return {name: value.replace("$", "$$") for name, value in labels.items()}
