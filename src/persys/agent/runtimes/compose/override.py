"""The agent's additions to a stack's document: labels, cgroup parent, pull and restart policy.

Compose replaces a container when a label changes. An unchanged service therefore keeps the revision and epoch
labels of its existing container. The revision of the stack as a whole is in its record.
"""

from collections.abc import Mapping

from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.cgroups import StackCgroups
from persys.agent.runtimes.compose.document import Document
from persys.agent.runtimes.compose.project import ContainerInfo, StackResources, labels_of
from persys.agent.runtimes.compose.source import Prepared
from persys.agent.runtimes.compose.state_dir import StackRecord
from persys.agent.runtimes.docker.mapping import (
    REVISION_LABEL,
    SERVICE_LABEL,
    WORKLOAD_LABEL,
    OwnerLabels,
)
from persys.core.agent.compose_policy import Json
from persys.model.workload import Order

_EPOCH_LABEL = "persys.epoch"
_HASH_LABEL = "persys.config_hash"
_VOLUME_LABEL = "com.docker.compose.volume"
_NETWORK_LABEL = "com.docker.compose.network"


class Override:
    def __init__(
        self, stack: StackResources, owner: OwnerLabels, cgroups: StackCgroups, *, is_v1: bool
    ) -> None:
        """`is_v1`: for Compose v1, which supports fewer options."""
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
        return documents.merged(prepared.document, override)

    async def _additions(self, order: Order, record: StackRecord) -> Document:
        made = await self._stack.containers(order.workload_id)
        before = {labels_of(one).get(SERVICE_LABEL): one for one in made}
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
        if order.stop_after_seconds:
            # After a reboot Docker would start it before the agent knows how long the scheduler is lost.
            service |= {"restart": "no", "deploy": {"restart_policy": {"condition": "none"}}}
        return service

    def _shared(
        self, order: Order, names: tuple[str, ...], made: list[ContainerInfo], label: str
    ) -> dict[str, Json]:
        before = {labels_of(one).get(label): labels_of(one) for one in made}
        return {name: {"labels": self._labels(order, before.get(name, {}))} for name in names}

    def _labels(self, order: Order, before: Mapping[str, str]) -> dict[str, Json]:
        labels = self._owner.labels | {
            WORKLOAD_LABEL: order.workload_id,
            REVISION_LABEL: before.get(REVISION_LABEL, order.revision),
            _EPOCH_LABEL: before.get(_EPOCH_LABEL, str(order.epoch)),
        }
        # Compose expands variables in every value.
        return {name: value.replace("$", "$$") for name, value in labels.items()}
