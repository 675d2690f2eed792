"""The Compose project name of a stack, and the check that it is free on this node.

Compose finds the containers of a project by this name alone. A stack with a name that is already in use would
replace other containers, join their networks and write to their volumes, so such a name is rejected.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from persys.agent.runtimes.compose.project import PROJECT_LABEL, Described, labels_of
from persys.agent.runtimes.compose.source import compose_spec
from persys.agent.runtimes.compose.state_dir import StackRecord
from persys.agent.runtimes.docker.engine import Engine, EngineError, as_unavailable, understood
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, Owner
from persys.model.ids import WorkloadId
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order

NAME_TAKEN = "NameTaken"
_SHOWN_MAX = 5


def project_of(
    order: Order, record: StackRecord | None, found: Sequence[Described], owner: Owner
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
    def __init__(self, engine: Engine, owner: Owner) -> None:
        self._engine = engine
        self._owner = owner

    async def check(self, record: StackRecord, workload_id: WorkloadId) -> Failure | None:
        """Fail if resources of others use this project name. Raises RuntimeUnavailableError."""
        project = record.project
        containers = await self._list("containers/json", {"all": "true"})
        with understood("containers"):
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
        with understood("volumes and networks"):
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
