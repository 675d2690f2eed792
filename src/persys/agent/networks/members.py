"""The addresses of the members on this node. They are stored before a member is created.

An address stays with its workload until the workload is deleted or leaves the network: a restart, a new
revision or a new container keeps it.
"""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct

from persys.agent.journal.records import JournalChange
from persys.agent.journal.store import Journal
from persys.core.networks.addresses import MemberAddress, bridge_address, mac_of, next_address
from persys.model.ids import WorkloadId
from persys.model.network import NodeNetwork
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order

NO_ADDRESS = "NoAddress"


class Endpoint(Struct, frozen=True):
    """How a workload, or a service of a stack, joins a network."""

    network: NodeNetwork
    address: str
    mac: str
    bridge_address: str  # also of its gateway and its DNS server
    part: str = ""


class Members:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = (
            asyncio.Lock()
        )  # one assignment at a time: two must not select the same address
        # Addresses in use that the journal does not know, by network.
        self._foreign: dict[str, frozenset[str]] = {}

    def networks(self) -> dict[str, NodeNetwork]:
        """All networks of this node, also those that are about to be removed."""
        stored = self._journal.networks
        found = (*stored.leaving, *stored.configuration.networks)
        return {one.network_id: one for one in found}

    def of_network(self, network_id: str) -> list[MemberAddress]:
        return [one for one in self._journal.addresses.values() if one.network_id == network_id]

    def of_workload(self, workload_id: WorkloadId) -> list[MemberAddress]:
        return self._journal.members.get(workload_id, [])

    def endpoints(self, order: Order, part: str = "") -> list[Endpoint]:
        """In the order of the workload's networks. Addresses were reserved before."""
        networks = self.networks()
        by_network = {
            one.network_id: one for one in self.of_workload(order.workload_id) if one.part == part
        }
        found: list[Endpoint] = []
        for network_id in order.networks:
            network, member = networks.get(network_id), by_network.get(network_id)
            if network is None or member is None:
                continue
            bridge = bridge_address(network.subnet, network.slices)
            assert bridge is not None, "a member has an address of a slice"
            found.append(Endpoint(network, member.address, mac_of(member.address), bridge, part))
        return found

    def set_foreign(self, network_id: str, addresses: Iterable[str]) -> None:
        """Addresses that something else uses on the network."""
        self._foreign[network_id] = frozenset(addresses)

    async def reserve(self, order: Order, parts: Sequence[str] = ("",)) -> Failure | None:
        """Assign and store the addresses of all parts. Raises StoreUnavailableError."""
        async with self._lock:
            networks = self.networks()
            known = {(one.network_id, one.part) for one in self.of_workload(order.workload_id)}
            assigned: list[MemberAddress] = []
            for network_id in order.networks:
                network = networks.get(network_id)
                if network is None:
                    text = f"network {network_id} is not configured on this node"
                    return Failure(FailureReason.NETWORK_ERROR, text, code=NO_ADDRESS)
                taken = {one.address for one in self.of_network(network_id)}
                taken |= self._foreign.get(network_id, frozenset())
                for part in parts:
                    if (network_id, part) in known:
                        continue
                    address = next_address(network.subnet, network.slices, taken)
                    if address is None:
                        text = (
                            f"no free address on network {network_id}: all addresses of "
                            f"{', '.join(network.slices)} are in use on this node"
                        )
                        return Failure(FailureReason.NETWORK_ERROR, text, code=NO_ADDRESS)
                    taken.add(address)
                    assigned.append(MemberAddress(network_id, order.workload_id, address, part))
            if assigned:
                await self._journal.commit(JournalChange(addresses=assigned))
        return None

    async def release_unused(self) -> None:
        """Release addresses of workloads that were deleted, or that have settled without the network."""
        unused: list[MemberAddress] = []
        for one in self._journal.addresses.values():
            entry = self._journal.entries.get(one.workload_id)
            if one.workload_id in self._journal.unreadable:
                continue
            if entry is None or (
                one.network_id not in entry.order.networks
                and self._journal.open_action(entry) is None
            ):
                unused.append(one)
        if unused:
            await self._journal.commit(JournalChange(addresses_removed=unused))
