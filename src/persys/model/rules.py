"""Placement rules of a workload. They affect only the choice of a node, not the running workload."""

from enum import StrEnum

from msgspec import Struct

PRIORITY_DEFAULT = 50
PRIORITY_MAX = 100


class Operator(StrEnum):
    EQUALS = "="
    DIFFERS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABOVE = ">"
    BELOW = "<"
    MATCHES = "~"
    VERSION = "version"


class Constraint(Struct, frozen=True, omit_defaults=True):
    """A condition on one label of a node, or on one of its facts, whose keys begin with `node.`.

    `values` has one element, except for `in` and `notin` (one or more), `exists` (none) and `version` (one or
    more comparisons such as `>=5.10`, all of which must hold).
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Strategy(StrEnum):
    SPREAD = "spread"
    BINPACK = "binpack"


class Rules(Struct, frozen=True, omit_defaults=True):
    constraints: tuple[Constraint, ...] = ()
    tolerations: tuple[str, ...] = ()  # key, key=value, or * for all taints
    group: str = ""
    apart: bool = False  # required anti-affinity; otherwise it is only preferred
    spread_over: tuple[str, ...] = ()  # labels, the most important first
    strategy: Strategy | None = None  # None: the default of the cluster
    priority: int = PRIORITY_DEFAULT


NO_RULES = Rules()
