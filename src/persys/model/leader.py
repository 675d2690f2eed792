"""Who leads the control plane, and where it is called."""

from msgspec import Struct


class Leader(Struct, frozen=True):
    name: str
    endpoint: str = ""  # host:port, for those who pass calls on to it
