"""Identifiers, and which values are allowed.

A workload id becomes a key in the store, a container name, a Compose project, a libvirt domain and a
DNS label. Only the DNS label of RFC 1123 is valid in all of them, so that is what an id must be.
"""

import re
from typing import NewType

from persys.errors import InvalidError

WorkloadId = NewType("WorkloadId", str)
NodeId = NewType("NodeId", str)
Revision = NewType("Revision", str)
ActionId = NewType("ActionId", str)

WORKLOAD_ID_RULE = (
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit, "
    "because it is also used as a container, project, machine and DNS name"
)
NODE_ID_RULE = "1 to 253 of letters, digits, '.', '_' and '-', beginning with a letter or digit"

_WORKLOAD_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NODE_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,252}")


def label_id(text: str, kind: str, *, field: str) -> str:
    """A DNS label, for other names that are used like workload ids."""
    if not _WORKLOAD_ID.fullmatch(text):
        raise InvalidError(
            field,
            f"invalid {kind} {_shown(text)}: expected 1 to 63 of a-z, 0-9 and '-', beginning and "
            "ending with a letter or digit",
        )
    return text


def workload_id(text: str, *, field: str = "workload_id") -> WorkloadId:
    if not text:
        raise InvalidError(field, f"is missing: expected {WORKLOAD_ID_RULE}")
    if not _WORKLOAD_ID.fullmatch(text):
        raise InvalidError(
            field, f"invalid workload id {_shown(text)}: expected {WORKLOAD_ID_RULE}"
        )
    return WorkloadId(text)


def node_id(text: str, *, field: str = "node_id") -> NodeId:
    if not text:
        raise InvalidError(field, f"is missing: expected {NODE_ID_RULE}")
    if not _NODE_ID.fullmatch(text):
        raise InvalidError(field, f"invalid node id {_shown(text)}: expected {NODE_ID_RULE}")
    return NodeId(text)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:40]!r}… ({len(text)} characters)"
