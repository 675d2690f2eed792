"""The networks of Docker that containers join, and the devices of containers on their bridges.

Docker uses the bridge that the agent has created, and does not remove it. The network of Docker has the whole
subnet, and the address of the bridge as its gateway; each container is given its address.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from msgspec import Struct

from persys.agent.networks.devices import HostError, NetworkHost
from persys.agent.networks.members import Members
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import NETWORK_LABEL, OwnerLabels
from persys.core.networks.addresses import MemberAddress, bridge_address, mac_of
from persys.core.networks.devices import MTU, Link, bridge_name
from persys.core.networks.firewall import Port
from persys.errors import UnavailableError
from persys.model.network import NodeNetwork

log = structlog.get_logger()

_DEADLINE_SECONDS = 60.0


class DockerNetwork(Struct, frozen=True):
    """A network of Docker, as found."""

    id: str
    name: str
    network_id: str
    subnet: str = ""
    gateway: str = ""
    bridge: str = ""


class _Attached(Struct, frozen=True):
    """A running container on a network."""

    container_id: str
    endpoint_id: str
    address: str


@dataclass(frozen=True, slots=True)
class NetworkParts:
    """What the networks of a node need from its runtimes."""

    mark: str  # distinguishes this agent from others on the host
    members: Members
    host: NetworkHost
    docker: "DockerNetworks"


class DockerNetworks:
    def __init__(self, engine: Engine, owner: OwnerLabels, host: NetworkHost) -> None:
        self._engine = engine
        self._owner = owner
        self._host = host
        self._port_indexes: dict[str, int] = {}  # of the host's end, by the endpoint of Docker

    async def ensure(self, networks: Sequence[NodeNetwork]) -> dict[str, str]:
        """Create missing networks, and remove those that are not in `networks`.

        Returns the problem of each network that could not be created. Raises RuntimeUnavailableError.
        """
        problems: dict[str, str] = {}
        found = {one.network_id: one for one in await self.found()}
        wanted: dict[str, NodeNetwork] = {one.network_id: one for one in networks}
        for network_id, present in found.items():
            network = wanted.get(network_id)
            if network is not None and _is_right(present, network):
                continue
            problem = await self._remove(present)
            if problem and network is not None:
                problems[network_id] = f"Docker network {present.name} differs: {problem}"
        for network_id, network in wanted.items():
            present_ = found.get(network_id)
            if network_id in problems or (present_ is not None and _is_right(present_, network)):
                continue
            problem = await self._create(network)
            if problem:
                problems[network_id] = problem
        return problems

    async def found(self) -> list[DockerNetwork]:
        filters = json.dumps({"label": [*self._owner.filters(), NETWORK_LABEL]})
        try:
            found = await self._engine.call("GET", "networks", params={"filters": filters})
        except EngineError as err:
            raise as_unavailable(err) from err
        with parsing_response("networks"):
            return [_network(one) for one in found]

    async def ports(
        self, network: NodeNetwork, members: Sequence[MemberAddress], links: Mapping[str, Link]
    ) -> tuple[list[Port], frozenset[str]]:
        """The devices of the running members, and addresses in use by other containers."""
        by_index = {link.index: link for link in links.values()}
        assigned = {one.address for one in members}
        ports: list[Port] = []
        attached = await self._attached(network)
        for one in attached:
            if one.address not in assigned:
                continue
            index = await self._port_index(one)
            link = by_index.get(index)
            if link is not None and link.master in ("", bridge_name(network.number)):
                ports.append(Port(link.name, one.address))
        return ports, frozenset(one.address for one in attached) - assigned

    def keep(self, links: Mapping[str, Link]) -> None:
        """Drop what is known about devices that no longer exist."""
        indexes = {link.index for link in links.values()}
        self._port_indexes = {
            endpoint: index for endpoint, index in self._port_indexes.items() if index in indexes
        }

    async def _attached(self, network: NodeNetwork) -> list[_Attached]:
        try:
            found = await self._engine.call("GET", f"networks/{docker_name(self._owner, network)}")
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return []
            raise as_unavailable(err) from err
        with parsing_response("a network"):
            return [
                _Attached(
                    str(container_id),
                    str(one["EndpointID"]),
                    str(one.get("IPv4Address", "")).partition("/")[0],
                )
                for container_id, one in (found.get("Containers") or {}).items()
            ]

    async def _port_index(self, attached: _Attached) -> int:
        """The index of the host's end of a container's device; 0 if it is not found."""
        known = self._port_indexes.get(attached.endpoint_id)
        if known is not None:
            return known
        try:
            found = await self._engine.call("GET", f"containers/{attached.container_id}/json")
            with parsing_response("a container"):
                pid = int(found["State"]["Pid"])
            ends = await self._host.links_of(pid) if pid else {}
        except (EngineError, HostError) as err:  # it has just ended
            log.debug("network.port_unknown", container_id=attached.container_id, reason=str(err))
            return 0
        index = ends.get(mac_of(attached.address), 0)
        if index:
            self._port_indexes[attached.endpoint_id] = index
        return index

    async def _create(self, network: NodeNetwork) -> str:
        gateway = bridge_address(network.subnet, network.slices)
        body = {
            "Name": docker_name(self._owner, network),
            "CheckDuplicate": True,
            "Driver": "bridge",
            "IPAM": {
                "Driver": "default",
                "Config": [{"Subnet": network.subnet, "Gateway": gateway}],
            },
            "Options": {
                "com.docker.network.bridge.name": bridge_name(network.number),
                "com.docker.network.driver.mtu": str(MTU),
            },
            "Labels": {**self._owner.labels, NETWORK_LABEL: network.network_id},
        }
        try:
            await self._engine.call(
                "POST", "networks/create", body=body, deadline=_DEADLINE_SECONDS
            )
        except EngineError as err:
            if err.status == HTTPStatus.CONFLICT:
                return f"Docker has a network {body['Name']} of something else: {err.message}"
            return f"Docker cannot create the network: {err.message}"
        log.info("network.joined_docker", network_id=network.network_id)
        return ""

    async def _remove(self, network: DockerNetwork) -> str:
        """Returns "" if it was removed, else the reason: containers may still use it."""
        try:
            await self._engine.call("DELETE", f"networks/{network.id}", deadline=_DEADLINE_SECONDS)
        except EngineError as err:
            return "" if err.status == HTTPStatus.NOT_FOUND else err.message
        except UnavailableError as err:
            return str(err)
        return ""


def docker_name(owner: OwnerLabels, network: NodeNetwork) -> str:
    """The name of the network in Docker."""
    return owner.network_name(network.network_id)


def _is_right(found: DockerNetwork, network: NodeNetwork) -> bool:
    gateway = bridge_address(network.subnet, network.slices)
    wanted = (network.subnet, gateway, bridge_name(network.number))
    return (found.subnet, found.gateway, found.bridge) == wanted


def _network(found: Mapping[str, Any]) -> DockerNetwork:
    configured = ((found.get("IPAM") or {}).get("Config") or [{}])[0]
    return DockerNetwork(
        id=str(found["Id"]),
        name=str(found["Name"]),
        network_id=str(found["Labels"][NETWORK_LABEL]),
        subnet=str(configured.get("Subnet", "")),
        gateway=str(configured.get("Gateway", "")),
        bridge=str((found.get("Options") or {}).get("com.docker.network.bridge.name", "")),
    )
