"""Services: a name, with the healthy members of sets and of labelled workloads behind it.

Only the definition is stored. The endpoints follow from the records of the members and of their nodes.
"""

from datetime import datetime
from enum import StrEnum
from typing import NewType

from msgspec import Struct

ServiceId = NewType("ServiceId", str)

WEIGHT_DEFAULT = 1


class ServiceProtocol(StrEnum):
    TCP = "tcp"
    UDP = "udp"
    HTTP = "http"

    @property
    def transport(self) -> str:
        """The protocol of the published port, and the last label of SRV names."""
        return "udp" if self is ServiceProtocol.UDP else "tcp"


class ServicePort(Struct, frozen=True):
    """`port` is the one on which members listen: the port of a container, or of a VM."""

    name: str
    port: int
    protocol: ServiceProtocol = ServiceProtocol.TCP


class Selector(Struct, frozen=True, omit_defaults=True):
    """Selects the members of a set, or workloads with all these labels."""

    set_id: str = ""
    labels: dict[str, str] = {}
    weight: int = WEIGHT_DEFAULT  # of each member


class Service(Struct, frozen=True):
    service_id: ServiceId
    ports: tuple[ServicePort, ...]
    members: tuple[Selector, ...]
    created_at: datetime
    updated_at: datetime
    hosts: tuple[str, ...] = ()  # for which a reverse proxy should route requests here
