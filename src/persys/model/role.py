"""What somebody is in a cluster. By itself, so that a command line knows it without more."""

from enum import StrEnum

NAMES = "persys.internal"  # under it are the names by which the parts of a cluster know each other


class Role(StrEnum):
    SCHEDULER = "scheduler"
    AGENT = "agent"  # its name is the id of its node
    GATEWAY = "gateway"
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    CA = "ca"  # the authority's own certificate, as a server
