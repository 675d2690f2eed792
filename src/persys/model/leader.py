"""The leader of the control plane and its address."""

from msgspec import Struct


class Leader(Struct, frozen=True):
    name: str
    endpoint: str = ""  # host:port, for replicas that forward calls to it
