"""The command that helps next with a workload that is not as it should be, by the kind of its failure.

`--wait` prints it beside the reason, and `doctor` shows it as the cure.
"""

from persys.wire.gen.control.v1.control_pb2 import WorkloadView

UNHEALTHY = "Unhealthy"
UNPLACEABLE = "Unplaceable"
CRASH_LOOP = "CrashLoop"

_HEALTH = "container.health"
_OUTPUT_HELPS = frozenset({"RUNTIME_ERROR", "VM_BOOT_FAILED"})
_IMAGE = frozenset({"IMAGE_PULL_FAILED", "IMAGE_NOT_FOUND"})


def health_of(workload: WorkloadView) -> str:
    """starting, healthy or unhealthy; empty for a workload that nothing checks or that does not run."""
    if workload.status.lower() != "running":
        return ""
    if workload.reason.code == UNHEALTHY:
        return "unhealthy"
    return workload.metadata.get(_HEALTH, "")


def status_text(workload: WorkloadView) -> str:
    unhealthy = health_of(workload) == "unhealthy"
    return f"{workload.status} (unhealthy)" if unhealthy else workload.status


def next_step(workload: WorkloadView) -> str:
    """One sentence that names the command to run next; empty for a workload that needs none."""
    name = workload.workload_id
    failure = workload.failure_reason or workload.reason.code
    if health_of(workload) == "unhealthy":
        return f"see its output with `persysctl logs {name}`, and its health check in the spec"
    if workload.status.lower() in ("running", "stopped"):
        return ""
    if workload.reason.code == UNPLACEABLE or failure == "INSUFFICIENT_RESOURCES":
        return f"see what each node lacks with `persysctl explain {name}`"
    if failure in _IMAGE:
        return (
            "check the image name, and that the node reaches its registry and has the credential; "
            f"then run `persysctl workload retry {name}`"
        )
    if failure == "INVALID_SPEC":
        return "correct the spec and apply it again"
    if workload.type == "vm" and failure in _OUTPUT_HELPS:
        return f"see its console with `persysctl logs {name}`"
    if failure in _OUTPUT_HELPS or workload.reason.code in (CRASH_LOOP, "Restarting"):
        return f"see its output with `persysctl logs {name}`"
    if failure == "STORAGE_ERROR":
        return f"see its volumes with `persysctl volume list --workload {name}`"
    if workload.assigned_node_id and workload.status.lower() in ("unknown", "failed"):
        return f"see its node with `persysctl node get {workload.assigned_node_id}`"
    return f"see its history with `persysctl events --workload {name}`"
