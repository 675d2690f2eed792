"""Which agent may act as a node: one process at a time, even if its disk was cloned.

An agent stores the instance id of its last registration. Each new process that registers gets a new id, so
that an older copy of the disk is recognised by its old one. The session id names the process: it may register
again, on another stream or at another scheduler. A certificate from a new join replaces the machine.
"""

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from persys.model.ids import NodeId
from persys.model.node import Node

SESSIONS_MAX = 8


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration, as the agent sends it and its certificate proves it."""

    node: Node
    instance_id: str = ""  # "": the agent has none, or is a third-party agent
    session_id: str = ""  # "": a third-party agent
    enrolled_at: datetime | None = None  # of its certificate; None: it presents none
    shared_from: str | None = (
        None  # the host it is on; None: its certificate is its own, or it has none
    )
    is_proven: bool = False  # its certificate names the node
    boot_id: str = ""  # of the kernel that it and its runtimes run on; "": not certain
    known_by_host: bool = False  # its certificate is not from persys-ca


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """The agent that is registered as the node now."""

    node: Node
    has_lease: bool
    is_connected: bool  # its stream is open
    is_confirmed: bool  # this scheduler has received a report with its instance id
    boot_id: str = ""
    reported_at: float | None = None  # its last heartbeat, on the monotonic clock


def cluster_refusal(node: Node, known: Node | None, cluster_id: str) -> str:
    """Why a node may not join this cluster; empty if it may. One that names no cluster joins any.

    A node that is a member already stays one: its id may be older than this rule.
    """
    if node.cluster_id in ("", cluster_id):
        return ""
    if known is not None and known.cluster_id == node.cluster_id:
        return ""
    return (
        f"node {node.id} is configured for cluster {node.cluster_id!r}, and this scheduler serves cluster "
        f"{cluster_id!r}: set PERSYS_CLUSTER_ID={cluster_id} on the node, or connect it to a scheduler of "
        f"cluster {node.cluster_id!r}"
    )


def registration_refusal(registration: Registration, holder: RegisteredAgent | None) -> str:
    """Why the applicant may not be the node now; empty if it may."""
    if holder is not None and (why := host_refusal(holder.node, registration.shared_from)):
        return why
    if holder is None or _has_joined_since(registration, holder.node):
        return ""
    if registration.session_id and registration.session_id == holder.node.session_id:
        return ""
    if not _is_alive(registration, holder):
        return _after_lease(registration, holder)
    node_id = holder.node.id
    return (
        f"another agent is registered as node {node_id} and is alive: if this machine is a clone, give it "
        f"a node id and a certificate of its own; if it replaces node {node_id}, join it with a token"
    )


def is_superseded(
    registration: Registration,
    holder: RegisteredAgent,
    *,
    refused_since: float,
    lease_seconds: float,
) -> bool:
    """Whether a refused agent learns that another host is the node, so that it stops workloads with data.

    Both processes must be alive at the same time on different kernels. The holder sent a heartbeat a whole
    lease after the agent was first refused, so it is not the previous process of this agent. The boot ids
    differ, so the runtimes of the two are not the same.
    """
    return (
        holder.has_lease
        and registration.session_id not in ("", holder.node.session_id)
        and "" not in (registration.boot_id, holder.boot_id)
        and registration.boot_id != holder.boot_id
        and holder.reported_at is not None
        and holder.reported_at >= refused_since + lease_seconds
    )


class Refusals:
    """Since when processes have been refused as a node, of the last few of each node."""

    def __init__(self) -> None:
        self._since: dict[NodeId, dict[str, float]] = {}

    def note(self, node_id: NodeId, session_id: str, now: float) -> float:
        """When the process was first refused."""
        known = self._since.setdefault(node_id, {})
        since = known.setdefault(session_id, now)
        while len(known) > SESSIONS_MAX:
            del known[next(iter(known))]
        return since

    def forget(self, node_id: NodeId) -> None:
        self._since.pop(node_id, None)


def registered_node(
    registration: Registration, holder: RegisteredAgent | None, new_id: str
) -> Node:
    """The node's record with the instance id that the applicant gets. `new_id` is used for a new process."""
    node = replace(
        registration.node,
        bound_host=registration.shared_from or "",
        has_own_certificate=registration.is_proven,
        known_by_host=registration.known_by_host,
    )
    if not registration.session_id:
        return node
    old = holder.node if holder is not None else None
    if old is not None and old.session_id == registration.session_id:
        return replace(
            node,
            instance_id=old.instance_id,
            instance_before=old.instance_before,
            session_id=old.session_id,
        )
    return replace(
        node,
        instance_id=new_id,
        instance_before=registration.instance_id,
        session_id=registration.session_id,
    )


def host_refusal(node: Node, shared_from: str | None) -> str:
    """Why an agent with a shared certificate on this host may not be the node; empty if it may.

    None: its certificate is its own, or it has none.
    """
    if shared_from is None:
        return ""
    hint = f"persysctl node remove {node.id} lets it register again"
    if node.has_own_certificate:
        return f"node {node.id} has registered with a certificate of its own: {hint}"
    if node.bound_host and node.bound_host != shared_from:
        return (
            f"node {node.id} with a shared certificate is bound to host {node.bound_host}, from which it "
            f"registered first; this call is from {shared_from}: {hint}"
        )
    return ""


def is_registered_agent(node: Node, instance_id: str) -> bool:
    """Whether a report with this instance id is from the agent that is registered."""
    return instance_id == node.instance_id


def _has_joined_since(registration: Registration, node: Node) -> bool:
    return registration.enrolled_at is not None and registration.enrolled_at > node.registered_at


def _is_alive(registration: Registration, holder: RegisteredAgent) -> bool:
    """Whether the holder must be taken to be alive, and is not the applicant's own last process."""
    if not holder.has_lease:
        return False
    node = holder.node
    same_endpoint = registration.node.endpoint != "" and registration.node.endpoint == node.endpoint
    if not node.instance_id:
        return holder.is_connected and not same_endpoint
    if not registration.session_id or not registration.instance_id:
        return holder.is_connected or not same_endpoint
    if registration.instance_id == node.instance_id:
        # The next process of the same machine, or a clone: a clone has another address.
        return holder.is_connected or _host(registration.node) != _host(node)
    # The answer to its last registration may have been lost.
    answer_lost = registration.instance_id == node.instance_before and not holder.is_confirmed
    return not (answer_lost and not holder.is_connected)


def _host(node: Node) -> str:
    return node.endpoint.rpartition(":")[0] or node.endpoint


def _after_lease(registration: Registration, holder: RegisteredAgent) -> str:
    """The holder is gone or unreachable. An old copy of its disk must not replace it."""
    known = (holder.node.instance_id, holder.node.instance_before)
    is_stale = bool(registration.instance_id) and registration.instance_id not in known
    if not holder.node.instance_id or not is_stale or registration.enrolled_at is None:
        return ""
    node_id = holder.node.id
    return (
        f"this agent has an outdated copy of the state of node {node_id}: another agent has registered as "
        "that node since; to replace it, join this machine with a token"
    )
