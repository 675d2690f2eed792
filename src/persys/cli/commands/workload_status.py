"""Texts about the status of a workload: status, reason, attempts, addresses and the next command to run.

The next command depends on the kind of failure. `--wait` prints it after the reason, `doctor` as the fix.
"""

import re
from collections.abc import Sequence

from persys.cli.framework.live import LiveState
from persys.cli.framework.output import code_text
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

UNHEALTHY = "Unhealthy"
UNPLACEABLE = "Unplaceable"
DRIFTED = "Drifted"
CRASH_LOOP = "CrashLoop"
_HEALTH = ("container.health", "vm.health")
_HEALTH_FAILURES = "container.health_failures"
_PULLING = "Pulling"
_SERVICES = "compose.services"
_UP = ("running", "completed")
_AMOUNTS = re.compile(r"(?P<got>[0-9.]+) of (?P<all>[0-9.]+) MB")


def health_of(workload: WorkloadView) -> str:
    """starting, healthy or unhealthy; empty for a workload without a health check or that is not running."""
    if workload.status.lower() != "running":
        return ""
    if workload.reason.code == UNHEALTHY:
        return "unhealthy"
    return next((workload.metadata[key] for key in _HEALTH if key in workload.metadata), "")


def has_drifted(workload: WorkloadView) -> bool:
    """Whether it runs with settings that differ from its spec. Its node repairs that if it can."""
    return workload.status.lower() == "running" and workload.reason.code == DRIFTED


def status_text(workload: WorkloadView) -> str:
    if health_of(workload) == "unhealthy":
        return f"{workload.status} (unhealthy)"
    return f"{workload.status} (drifted)" if has_drifted(workload) else workload.status


def reason_text(workload: WorkloadView) -> str:
    """The reason for the status, as reported by the scheduler."""
    code = code_text(workload.reason.code or workload.failure_reason)
    parts = (code, workload.reason.message)
    return ": ".join(part for part in parts if part)


def attempts_text(workload: WorkloadView) -> str:
    of = f" of {workload.retry_max_attempts}" if workload.retry_max_attempts else ""
    return f"{workload.retry_attempts}{of} attempts"


def address_text(workload: WorkloadView) -> str:
    """IP addresses of a VM, ports of a container or stack; empty unless it is running."""
    if workload.status.lower() != "running":
        return ""
    found = workload.metadata
    return found.get("vm.ip_addresses", "") or found.get("container.ports", "")


def current_step(workload: WorkloadView) -> LiveState | None:
    """What its node is doing: pull, services, health check or start. None: its status says it."""
    status, code, message = workload.status.lower(), workload.reason.code, workload.reason.message
    if status == "pending" and code == _PULLING:
        return LiveState("pull", message.removeprefix("pulling "), _share(message), ticks=True)
    services = [word for word in workload.metadata.get(_SERVICES, "").split(",") if word]
    up = [word for word in services if word.rpartition("=")[2] in _UP]
    waits = ", ".join(word for word in services if word not in up)
    if status in ("pending", "running") and waits:
        return LiveState(f"{len(up)} of {len(services)} services running", waits)
    if health_of(workload) == "starting":
        failures = workload.metadata.get(_HEALTH_FAILURES, "")
        text = f"health check failed {failures}" if failures else "health check"
        return LiveState(text, message or "has not passed yet")
    if status == "pending" and workload.admitted_on_node and not code:
        return LiveState("starting", f"on node {workload.assigned_node_id}")
    return None


def _share(message: str) -> float | None:
    """The share of a pull that is done, from `12 of 40 MB`. None: its size is not known."""
    found = _AMOUNTS.search(message)
    try:
        size = float(found["all"]) if found else 0.0
        return min(float(found["got"]) / size, 1.0) if found and size else None
    except ValueError:
        return None


def step_after(reached: Sequence[WorkloadView]) -> str:
    """The next command after a wait that succeeded."""
    if len(reached) > 1:
        return "list them with `persysctl workload list`"
    for workload in reached:
        name = workload.workload_id
        if workload.status.lower() == "stopped" and workload.desired_state == "Stopped":
            return f"start it again with `persysctl workload start {name}`"
        if workload.type == "vm":
            return f"open its console with `persysctl console {name}`"
        return f"show its output with `persysctl logs {name}`"
    return ""


def next_step(workload: WorkloadView) -> str:
    """One sentence that names the next command; empty for a workload that needs none."""
    name, node = workload.workload_id, workload.assigned_node_id
    kind = _kind(workload)
    if not kind:
        return ""
    advice = _ADVICE[kind]
    if "{node}" in advice and not node:
        advice = _ADVICE["history"]
    return advice.format(name=name, node=node)


def _kind(workload: WorkloadView) -> str:
    """The key of the advice: by health, then by reason code, then by failure reason."""
    code, failure = workload.reason.code, workload.failure_reason
    health = health_of(workload)
    if health in ("unhealthy", "starting"):
        return health
    if code == DRIFTED:
        return DRIFTED
    if workload.status.lower() in ("running", "stopped"):
        return ""
    if code in _ADVICE:
        return code
    if failure == "RUNTIME_ERROR" and "container.exit_code" not in workload.metadata:
        return "never ran"  # there is no output to show
    if failure in _ADVICE:
        return failure
    return "node" if workload.status.lower() in ("unknown", "failed") else "history"


_OUTPUT = "check its output with `persysctl logs {name}`"
_LACKS = "show why each node rejects it with `persysctl explain {name}`"
_NODE = "check its node with `persysctl node get {node}`"
_WHOLE = "show the full message with `persysctl workload get {name}`"
_AGAIN = "then run `persysctl workload retry {name}`"
_PULL = f"check the image name, and that the node reaches the registry and has credentials for it; {_AGAIN}"
_ADVICE = {
    "unhealthy": f"{_OUTPUT}, and its health check in the spec",
    "starting": f"{_OUTPUT}; its health check has not passed yet",
    "never ran": _WHOLE,
    "node": _NODE,
    "history": "show its events with `persysctl events --workload {name}`",
    # By code.
    DRIFTED: "show what differs with `persysctl workload get {name}`; "
    "recreate it with `persysctl workload redeploy {name}`",
    UNPLACEABLE: _LACKS,
    CRASH_LOOP: _OUTPUT,
    "Restarting": _OUTPUT,
    "Exited": _OUTPUT,
    "BootFailed": "check its console output with `persysctl logs {name}`",
    "OOMKilled": f"raise its memory limit in the spec; {_OUTPUT}",
    "Quarantined": "the log of the agent on {node} has the error; "
    "retry with `persysctl workload retry {name}`",
    "InternalError": "show the error with `persysctl doctor`, and report it with the log",
    "TimedOut": "show the tasks of its node with `persysctl workload get {name}`",
    "OrderLost": "the agent on {node} accepted the request and lost it: check its log; "
    "retry with `persysctl workload retry {name}`",
    "PortTaken": f"free the host port, or change it in the spec; {_AGAIN}",
    "SecretUnresolved": "list the secrets with `persysctl secret list`, "
    f"add the missing one with `persysctl secret put NAME`; {_AGAIN}",
    "NodeUnreachable": _NODE,
    "NodeNotReady": _NODE,
    "NodeLost": _NODE,
    # By failure reason.
    "INSUFFICIENT_RESOURCES": _LACKS,
    "IMAGE_PULL_FAILED": _PULL,
    "IMAGE_NOT_FOUND": _PULL,
    "INVALID_SPEC": "correct the spec, shown by `persysctl workload get {name} -o yaml`, "
    "and apply it again",
    "RUNTIME_ERROR": _OUTPUT,
    "VM_BOOT_FAILED": "check its console output with `persysctl logs {name}`",
    "NETWORK_ERROR": _WHOLE,
    "STORAGE_ERROR": "list its volumes with `persysctl volume list --workload {name}`",
}
