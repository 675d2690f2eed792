"""The key of each record. All keys are built here.

Event keys sort by time: their timestamp has a fixed width and is always UTC.
"""

import re
from datetime import UTC, datetime

from persys.model.ids import NodeId, WorkloadId

NODES = "/nodes/"
WORKLOADS = "/workloads/"
ASSIGNMENTS = "/assignments/"
RETRIES = "/retries/"
STATUSES = "/beliefs/"
TOMBSTONES = "/tombstones/"
EVENTS = "/events/"
DRIFTS = "/drifts/"
HISTORIES = "/reconciliations/"
SUGGESTIONS = "/suggestions/"
SECRETS = "/secrets/"
TOKENS = "/tokens/"
REMOVED = "/removed/"
NODE_POOLS = "/nodepools/"
MACHINES = "/machines/"
SETS = "/sets/"
SET_REVISIONS = "/setrevisions/"
JOBS = "/jobs/"
RUNS = "/runs/"
SERVICES = "/services/"
EPOCHS = "/epochs/cluster"
CLUSTER = "/cluster"
LEADER = "/leader"
# The prefix that CoreDNS reads.
NAMES = "/skydns/"

_LEASE = "/lease"
_EVENT = re.compile(EVENTS + r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9]{12,18}")


def node_key(node_id: NodeId) -> str:
    return f"{NODES}{node_id}"


def node_lease_key(node_id: NodeId) -> str:
    return f"{NODES}{node_id}{_LEASE}"


def is_node_lease(key: str) -> bool:
    """Leases are below the keys of nodes: a read of NODES returns both."""
    return key.startswith(NODES) and key[len(NODES) :].endswith(_LEASE)


def workload_key(workload_id: WorkloadId) -> str:
    return f"{WORKLOADS}{workload_id}"


def assignment_key(workload_id: WorkloadId) -> str:
    return f"{ASSIGNMENTS}{workload_id}"


def retry_key(workload_id: WorkloadId) -> str:
    return f"{RETRIES}{workload_id}"


def status_key(workload_id: WorkloadId) -> str:
    return f"{STATUSES}{workload_id}"


def history_key(workload_id: WorkloadId) -> str:
    return f"{HISTORIES}{workload_id}"


def suggestion_key(suggestion_id: str) -> str:
    return f"{SUGGESTIONS}{suggestion_id}"


def token_key(token_id: str) -> str:
    return f"{TOKENS}{token_id}"


def secret_key(name: str) -> str:
    return f"{SECRETS}{name}"


def node_pool_key(pool_id: str) -> str:
    return f"{NODE_POOLS}{pool_id}"


def machine_key(name: str) -> str:
    return f"{MACHINES}{name}"


def set_key(set_id: str) -> str:
    return f"{SETS}{set_id}"


def set_revision_key(set_id: str, number: int) -> str:
    return f"{SET_REVISIONS}{set_id}/{number}"


def job_key(job_id: str) -> str:
    return f"{JOBS}{job_id}"


def run_key(job_id: str, run_id: str) -> str:
    return f"{RUNS}{job_id}/{run_id}"


def service_key(service_id: str) -> str:
    return f"{SERVICES}{service_id}"


def removed_key(node_id: NodeId) -> str:
    return f"{REMOVED}{node_id}"


def tombstone_key(node_id: NodeId, workload_id: WorkloadId) -> str:
    return f"{TOMBSTONES}{node_id}/{workload_id}"


def event_key(at: datetime, sequence: int) -> str:
    """`sequence` makes the key unique and orders events with equal timestamps."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    # Not strftime: it is slower, and does not pad the year on every platform.
    day = f"{utc.year:04}{utc.month:02}{utc.day:02}"
    time = f"{utc.hour:02}{utc.minute:02}{utc.second:02}.{utc.microsecond:06}"
    return f"{EVENTS}{day}T{time}Z-{sequence:012d}"


def is_event(key: str) -> bool:
    return _EVENT.fullmatch(key) is not None


def event_sequence(key: str) -> int:
    return int(key.rpartition("-")[2])


def node_drifts(node_id: NodeId) -> str:
    """The prefix of all drifts on one node."""
    return f"{DRIFTS}{node_id}/"


def drift_key(node_id: NodeId, workload_id: WorkloadId, drift_type: str) -> str:
    return f"{DRIFTS}{node_id}/{workload_id}/{drift_type}"


def name_key(name: str) -> str:
    """The key of a DNS name: its labels in reverse order."""
    return NAMES + "/".join(reversed(name.split(".")))


def is_name(key: str) -> bool:
    """DNS names may be in the etcd of the store; they are not records of the cluster."""
    return key.startswith(NAMES)


def name_of(key: str) -> str:
    return ".".join(reversed(key.removeprefix(NAMES).split("/")))
