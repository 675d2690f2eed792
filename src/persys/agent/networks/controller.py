"""Compares the networks of this node with the configuration, and repairs differences.

A pass reads the devices of the host and the networks of Docker, and changes what differs. It runs after a new
configuration, after a change of devices, before a member starts, and periodically. A network with a problem
does not affect the others. While Docker does not respond, its containers keep the ports that were known.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog
from msgspec.structs import replace

from persys.agent.journal.records import JournalChange, StoredNetworks
from persys.agent.journal.store import Journal
from persys.agent.networks.devices import HostError, NetworkHost, link_events
from persys.agent.networks.docker_networks import DockerNetworks
from persys.agent.networks.members import Members
from persys.agent.networks.resolver import NetworkResolver
from persys.agent.workloads import failpoints
from persys.core.networks.addresses import bridge_address
from persys.core.networks.devices import (
    Link,
    bridge_name,
    changes,
    foreign,
    owned,
    removals,
    unusable,
    vxlan_name,
)
from persys.core.networks.firewall import TABLE_PREFIX, Port, ruleset
from persys.errors import RuntimeUnavailableError, StoreUnavailableError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.failpoints import failpoint
from persys.model.network import NetworkConfiguration, NodeNetwork
from persys.model.workload import Order

log = structlog.get_logger()

PASS_INTERVAL_SECONDS = 15.0
IDLE_INTERVAL_SECONDS = 300.0  # on a node without networks: only its routes are read
RETRY_SECONDS = 2.0  # after a pass with a problem
ATTACH_SECONDS = 10.0
_MARK_PREFIX = "persys:"


class NetworkController:
    def __init__(
        self,
        mark: str,
        journal: Journal,
        members: Members,
        host: NetworkHost,
        docker: DockerNetworks | None,
        resolver: NetworkResolver,
        *,
        supervisor: Supervisor,
        changed: Callable[[], None],
    ) -> None:
        """`mark` distinguishes this agent from others on the host. `changed`: a network became ready, or not.

        `docker` is None on a node without Docker.
        """
        self._owner = _MARK_PREFIX + mark
        self._table = TABLE_PREFIX + mark
        self._journal = journal
        self._members = members
        self._host = host
        self._docker = docker
        self._resolver = resolver
        self._supervisor = supervisor
        self._changed = changed
        self._wake = asyncio.Event()
        self._pass_lock = asyncio.Lock()
        self._links: Mapping[str, Link] = {}
        self._ports: dict[str, Sequence[Port]] = {}
        self._firewall = ""
        self._problems: dict[str, str] = {}
        self._ready: frozenset[str] = frozenset()
        self._applied = ""  # the version after the first pass with it
        self.host_problem = "not checked yet"  # why the node cannot have networks; "": it can
        self.routes: tuple[str, ...] = ()

    async def detect(self) -> None:
        """Find out whether this node can have networks, and which devices it has already."""
        self.host_problem = await self._host.problem()
        if self.host_problem:
            log.info("networks.not_supported", reason=self.host_problem)
            return
        try:
            links = await self._read_links()
            self.routes = await self._host.routes(
                [link.name for link in owned(links.values(), self._owner)]
            )
        except HostError as err:
            self.host_problem = str(err)

    @property
    def supported(self) -> bool:
        return not self.host_problem

    @property
    def version(self) -> str:
        """The version of the configuration that was applied; "" if none."""
        return self._applied

    def network_ids(self) -> list[str]:
        """The networks for which the node has a device or a member, or which it is going to have."""
        found = {one.network_id for one in self._journal.addresses.values()}
        found |= set(self._members.networks())
        found |= set(owned(self._links.values(), self._owner).values())
        return sorted(found)

    def waiting_for(self, order: Order) -> str:
        """Why a member cannot be created or started yet; "" if it can."""
        for network_id in order.networks:
            if network_id not in self._ready:
                problem = self._problems.get(network_id, "")
                text = f"waiting for network {network_id}"
                return f"{text}: {problem}" if problem else text
        return ""

    async def configure(self, configuration: NetworkConfiguration) -> None:
        """Store the configuration; it is applied by the next pass. Raises StoreUnavailableError."""
        stored = self._journal.networks
        if stored.configuration == configuration:
            return
        configured = {one.network_id for one in configuration.networks}
        used = {one.network_id for one in self._journal.addresses.values()}
        leaving = tuple(
            one
            for one in (*stored.leaving, *stored.configuration.networks)
            if one.network_id in used - configured
        )
        networks = StoredNetworks(configuration, leaving)
        await self._journal.commit(JournalChange(networks=networks))
        log.info("networks.configured", version=configuration.version, count=len(configured))
        failpoint(failpoints.NETWORKS_CONFIGURED)
        self._wake.set()

    async def attach(self) -> None:
        """Let the members that have just started use their networks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ATTACH_SECONDS):
                await self._pass()

    async def run(self) -> None:
        if self.host_problem:
            await self._wait_for_support()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._resolver.run())
            group.create_task(self._follow_links())
            while True:
                self._wake.clear()
                complete = await self._contained_pass()
                seconds = PASS_INTERVAL_SECONDS if complete else RETRY_SECONDS
                if not self.network_ids() and complete:
                    seconds = IDLE_INTERVAL_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._wake.wait()

    async def _wait_for_support(self) -> None:
        while self.host_problem:
            await asyncio.sleep(IDLE_INTERVAL_SECONDS)
            await self.detect()
        self._changed()

    async def _follow_links(self) -> None:
        while True:
            try:
                async for _ in link_events():
                    if self._members.networks():
                        self._wake.set()
            except OSError as err:
                log.warning("networks.events_lost", reason=str(err))
            await asyncio.sleep(RETRY_SECONDS)

    async def _contained_pass(self) -> bool:
        """Returns whether everything is as configured."""
        with self._supervisor.contain("networks", "", failed=lambda _error: None):
            await self._pass()
            return not self._problems
        return False

    async def _pass(self) -> None:
        async with self._pass_lock:
            try:
                await self._converge()
            except (HostError, StoreUnavailableError) as err:
                self._note_problems(dict.fromkeys(self._members.networks(), str(err)))

    async def _converge(self) -> None:
        version = self._journal.networks.configuration.version
        await self._members.release_unused()
        await self._drop_left()
        networks = self._members.networks()
        links = await self._read_links()
        has_devices = bool(owned(links.values(), self._owner))
        if (
            not networks
            and not has_devices
            and not self._firewall
            and not self._journal.networks.configuration.version
        ):
            self.routes = await self._host.routes(())
            return  # a node that never had networks
        problems = await self._prepare(networks, links)
        usable = [one for one in networks.values() if one.network_id not in problems]
        if self._docker is not None:
            try:
                problems |= await self._docker.ensure(usable)
            except RuntimeUnavailableError as err:
                problems |= dict.fromkeys(networks, str(err))
        links = await self._read_links()
        await self._find_ports(usable, links)
        await self._attach_ports(usable, links)
        await self._apply_firewall(usable)
        failpoint(failpoints.NETWORKS_APPLIED)
        removed = removals(networks.values(), links.values(), self._owner)
        if removed:
            await self._host.apply(removed)
            links = await self._read_links()
        own = [bridge_name(one.number) for one in networks.values()]
        self.routes = await self._host.routes(own)
        self._resolver.serve(
            {
                address: one.network_id
                for one in usable
                if (address := bridge_address(one.subnet, one.slices)) is not None
            }
        )
        self._applied = version
        self._note_problems(problems)

    async def _drop_left(self) -> None:
        stored = self._journal.networks
        used = {one.network_id for one in self._journal.addresses.values()}
        leaving = tuple(one for one in stored.leaving if one.network_id in used)
        if leaving != stored.leaving:
            change = JournalChange(networks=replace(stored, leaving=leaving))
            await self._journal.commit(change)

    async def _prepare(
        self, networks: Mapping[str, NodeNetwork], links: Mapping[str, Link]
    ) -> dict[str, str]:
        """Create and repair the devices of each network. Returns the problems."""
        problems: dict[str, str] = {}
        for network_id, network in networks.items():
            if problem := unusable(network):
                problems[network_id] = problem
                continue
            if other := foreign(network, links, self._owner):
                problems[network_id] = f"device {other} belongs to another program"
                continue
            try:
                await self._repair(network, links, ())
            except HostError as err:
                problems[network_id] = str(err)
            failpoint(failpoints.NETWORK_PREPARED)
        return problems

    async def _attach_ports(
        self, networks: Sequence[NodeNetwork], links: Mapping[str, Link]
    ) -> None:
        """Attach the devices of members again, after their bridge was deleted."""
        for network in networks:
            ports = [port.name for port in self._ports.get(network.network_id, ())]
            loose = [name for name in ports if name in links and not links[name].master]
            if loose:
                log.info("network.ports_attached", network_id=network.network_id, count=len(loose))
                await self._repair(network, links, loose)

    async def _repair(
        self, network: NodeNetwork, links: Mapping[str, Link], ports: Sequence[str]
    ) -> None:
        name = vxlan_name(network.number)
        forwards = await self._host.forwards(name) if name in links else []
        todo = changes(network, links, forwards, ports, self._owner)
        if todo:
            await self._host.apply(todo)
            log.info(
                "network.repaired",
                network_id=network.network_id,
                links=len(todo.links),
                forwards=len(todo.forwards),
            )

    async def _find_ports(self, networks: Sequence[NodeNetwork], links: Mapping[str, Link]) -> None:
        if self._docker is None:
            return
        self._docker.keep(links)
        found: dict[str, Sequence[Port]] = {}
        for network in networks:
            members = self._members.of_network(network.network_id)
            try:
                ports, others = await self._docker.ports(network, members, links)
            except RuntimeUnavailableError:
                known = self._ports.get(network.network_id, ())
                found[network.network_id] = [one for one in known if one.name in links]
                continue
            self._members.set_foreign(network.network_id, others)
            found[network.network_id] = sorted(ports)
        self._ports = found

    async def _apply_firewall(self, networks: Sequence[NodeNetwork]) -> None:
        text = ruleset(networks, self._ports, self._table)
        if text != self._firewall or (networks and not await self._host.has_firewall(self._table)):
            await self._host.apply_firewall(text)
        self._firewall = text if networks else ""

    async def _read_links(self) -> Mapping[str, Link]:
        self._links = await self._host.links()
        return self._links

    def _note_problems(self, problems: Mapping[str, str]) -> None:
        for network_id, problem in problems.items():
            if self._problems.get(network_id) != problem:
                log.warning("network.failed", network_id=network_id, reason=problem)
        ready = frozenset(self._members.networks()) - problems.keys()
        is_changed = ready != self._ready or dict(problems) != self._problems
        self._problems, self._ready = dict(problems), ready
        if is_changed:
            self._changed()
