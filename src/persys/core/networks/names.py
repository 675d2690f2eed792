"""The answers to DNS questions of members.

A name is short (`web`), with its network (`web.backend`) or fully qualified (`web.backend.<domain>`). Other
names are refused: the agent forwards them.
"""

from collections.abc import Sequence

from persys.core.dns_names import Announcement
from persys.core.services.answers import Answer, Outcome
from persys.model.network import NodeNetwork


def answer(name: str, networks: Sequence[NodeNetwork], domain: str) -> Answer:
    """`name` is in lower case, without a trailing dot. The first of the networks with the name answers."""
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


def _label(name: str, network_id: str, zone: str) -> str:
    """The name of the member; "" if it is not a name of the network."""
    for suffix in (f".{zone}", f".{network_id}", ""):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return ""
