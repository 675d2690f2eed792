"""The command that helps next with a workload that is not as it should be, by the kind of its failure.

`--wait` prints it beside the reason, and `doctor` shows it as the cure.
"""

from persys.wire.gen.control.v1.control_pb2 import WorkloadView

UNHEALTHY = "Unhealthy"
UNPLACEABLE = "Unplaceable"
DRIFTED = "Drifted"
CRASH_LOOP = "CrashLoop"

_HEALTH = "container.health"


def health_of(workload: WorkloadView) -> str:
    """starting, healthy or unhealthy; empty for a workload that nothing checks or that does not run."""
    if workload.status.lower() != "running":
        return ""
    if workload.reason.code == UNHEALTHY:
        return "unhealthy"
    return workload.metadata.get(_HEALTH, "")


def has_drifted(workload: WorkloadView) -> bool:
    """It runs, and not as it was created. Its node repairs that if it can."""
    return workload.status.lower() == "running" and workload.reason.code == DRIFTED


def status_text(workload: WorkloadView) -> str:
    if health_of(workload) == "unhealthy":
        return f"{workload.status} (unhealthy)"
    return f"{workload.status} (drifted)" if has_drifted(workload) else workload.status


def next_step(workload: WorkloadView) -> str:
    """One sentence that names the command to run next; empty for a workload that needs none."""
    name, node = workload.workload_id, workload.assigned_node_id
    kind = _kind(workload)
    if not kind:
        return ""
    advice = _ADVICE[kind]
    if "{node}" in advice and not node:
        advice = _ADVICE["history"]
    return advice.format(name=name, node=node)


def _kind(workload: WorkloadView) -> str:
    """Which advice: by its health, then by the code, then by the reason of its failure."""
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
        return "never ran"  # so there is no output to look at
    if failure in _ADVICE:
        return failure
    return "node" if workload.status.lower() in ("unknown", "failed") else "history"


_OUTPUT = "see its output with `persysctl logs {name}`"
_LACKS = "see what each node lacks with `persysctl explain {name}`"
_NODE = "see its node with `persysctl node get {node}`"
_WHOLE = "see the whole message with `persysctl workload get {name}`"
_AGAIN = "then run `persysctl workload retry {name}`"
_PULL = (
    f"check the image name, and that the node reaches its registry and has the credential; {_AGAIN}"
)
_ADVICE = {
    "unhealthy": f"{_OUTPUT}, and its health check in the spec",
    "starting": f"{_OUTPUT}; its health check has not passed yet",
    "never ran": _WHOLE,
    "node": _NODE,
    "history": "see its history with `persysctl events --workload {name}`",
    # By code.
    DRIFTED: "see what differs with `persysctl workload get {name}`; "
    "`persysctl workload redeploy {name}` makes it again",
    UNPLACEABLE: _LACKS,
    CRASH_LOOP: _OUTPUT,
    "Restarting": _OUTPUT,
    "Exited": _OUTPUT,
    "BootFailed": "see its console with `persysctl logs {name}`",
    "OOMKilled": f"raise its memory limit in the spec; {_OUTPUT}",
    "Quarantined": "the log of the agent on {node} says why it ended; "
    "`persysctl workload retry {name}` tries it again",
    "InternalError": "see the error with `persysctl doctor`, and report it with the log",
    "TimedOut": "see what its node was doing with `persysctl workload get {name}`",
    "OrderLost": "the agent on {node} accepted the order and lost it: see its log; "
    "`persysctl workload retry {name}` sends the order again",
    "PortTaken": f"free the host port, or change it in the spec; {_AGAIN}",
    "SecretUnresolved": "see which secrets there are with `persysctl secret list`, "
    f"put what is missing; {_AGAIN}",
    "NodeUnreachable": _NODE,
    "NodeNotReady": _NODE,
    "NodeLost": _NODE,
    # By the reason of the failure.
    "INSUFFICIENT_RESOURCES": _LACKS,
    "IMAGE_PULL_FAILED": _PULL,
    "IMAGE_NOT_FOUND": _PULL,
    "INVALID_SPEC": "correct the spec, which `persysctl workload get {name} -o yaml` shows, "
    "and apply it again",
    "RUNTIME_ERROR": _OUTPUT,
    "VM_BOOT_FAILED": "see its console with `persysctl logs {name}`",
    "NETWORK_ERROR": _WHOLE,
    "STORAGE_ERROR": "see its volumes with `persysctl volume list --workload {name}`",
}
