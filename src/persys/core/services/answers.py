"""The answers to DNS questions, for a scheduler that serves DNS itself, and for members of networks.

A question is answered as CoreDNS does from the records in etcd: with all records at and below its name. A
name outside of the domains of the cluster is refused: the scheduler forwards nothing.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from persys.core.dns_names import Announcement, Zone
from persys.core.services.names import services_domain
from persys.model.network import NodeNetwork


class Outcome(StrEnum):
    FOUND = "found"  # the name exists; it may have no records of the type
    MISSING = "missing"  # no such name
    REFUSED = "refused"  # not a name of this cluster


class Answer(NamedTuple):
    """`zone` is the domain that the name belongs to. `records` are by their own name."""

    outcome: Outcome
    zone: str = ""
    records: tuple[tuple[str, Announcement], ...] = ()


class Names(Protocol):
    """What is published now. Both mappings are by name."""

    def service(self, service_id: str) -> Mapping[str, Announcement] | None:
        """None: there is no such service."""

    def agent(self, label: str) -> Announcement | None:
        """None: there is no such node, or it is not ready."""

    def schedulers(self) -> Mapping[str, Announcement]: ...


def answer(name: str, zone: Zone, names: Names) -> Answer:
    """`name` is in lower case, without a trailing dot."""
    if _is_within(name, services_domain(zone)):
        return _of_services(name, zone, names)
    if _is_within(name, zone.of_shard):
        return _of_agents(name, zone, names)
    if _is_within(name, zone.domain):
        return _below(name, zone.domain, names.schedulers())
    if _is_within(name, zone.agents_domain):
        return _empty_or_missing(name, zone.agents_domain, parent_of=zone.of_shard)
    return Answer(Outcome.REFUSED)


def answer_of_networks(name: str, networks: Sequence[NodeNetwork], domain: str) -> Answer:
    """The answer to a member of these networks. The first network with the name answers.

    A name is short (`web`), with its network (`web.backend`) or fully qualified (`web.backend.<domain>`).
    Other names are refused: the agent forwards them.
    """
    for network in networks:
        zone = f"{network.network_id}.{domain}" if domain else network.network_id
        label = _label(name, network.network_id, zone)
        for one in network.names:
            if one.name == label:
                records = tuple((name, Announcement(host, 0)) for host in one.addresses)
                return Answer(Outcome.FOUND, zone, records)
        if name == zone:
            return Answer(Outcome.FOUND, zone)
        if name.endswith(f".{zone}"):
            return Answer(Outcome.MISSING, zone)
    return Answer(Outcome.REFUSED)


def _of_services(name: str, zone: Zone, names: Names) -> Answer:
    domain = services_domain(zone)
    if name == domain:
        return Answer(Outcome.FOUND, zone.domain)
    service_id = name.removesuffix(f".{domain}").rpartition(".")[2]
    records = names.service(service_id)
    if records is None:
        return Answer(Outcome.MISSING, zone.domain)
    found = _below(name, zone.domain, records)
    # A service without endpoints exists.
    is_service = name == f"{service_id}.{domain}"
    return Answer(Outcome.FOUND, zone.domain) if is_service and not found.records else found


def _of_agents(name: str, zone: Zone, names: Names) -> Answer:
    if name == zone.of_shard:
        return Answer(Outcome.FOUND, zone.agents_domain)
    found = names.agent(name.removesuffix(f".{zone.of_shard}"))
    if found is None:
        return Answer(Outcome.MISSING, zone.agents_domain)
    return Answer(Outcome.FOUND, zone.agents_domain, ((name, found),))


def _below(name: str, zone: str, records: Mapping[str, Announcement]) -> Answer:
    if name == zone:
        return Answer(Outcome.FOUND, zone)
    found = tuple((own, one) for own, one in records.items() if _is_within(own, name))
    return Answer(Outcome.FOUND if found else Outcome.MISSING, zone, found)


def _empty_or_missing(name: str, zone: str, *, parent_of: str) -> Answer:
    exists = _is_within(parent_of, name)
    return Answer(Outcome.FOUND if exists else Outcome.MISSING, zone)


def _is_within(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}")


def _label(name: str, network_id: str, zone: str) -> str:
    """The name of the member; "" if it is not a name of the network."""
    for suffix in (f".{zone}", f".{network_id}", ""):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return ""
