"""Checks the cluster: clocks, mode, nodes, versions, workloads, sets, jobs, errors and unreadable records."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from persys import __version__
from persys.cli.doctor.finding import Finding, fail, ok, warn
from persys.errors import RefusedError
from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from persys.client import SchedulerClient
    from persys.wire.gen.control.v1.control_pb2 import (
        DiagnosticsView,
        ModeView,
        NodeView,
        PolicyViolation,
        QuarantinedRecord,
        WorkloadView,
    )

SKEW_WARN = timedelta(seconds=2)
SKEW_FAIL = timedelta(seconds=30)  # leases and new certificates depend on clocks
LISTED_MAX = 5
_READY = "ready"
_DRAINING = "draining"
NODE_FIX = (
    "on that host: `systemctl restart persys-agent`, or `persys up` on a machine that it set up; "
    "`persysctl node get {node}` shows details"
)
_POLICY_VIOLATION = "policy_violation"
_WAITING = frozenset({"pending", "unknown"})
_CLOCK = "synchronise the clocks with `timedatectl set-ntp true` on both; `chronyc tracking` shows the state"


def check_cluster(client: "SchedulerClient") -> Iterator[Finding]:
    """Raises PersysError."""
    clock = SystemClock()
    before = clock.now()
    summary = client.get_summary()
    after = clock.now()
    yield check_clock(summary.generated_at.ToDatetime(UTC), before, after)
    mode = client.get_mode()
    yield check_mode(mode)
    nodes = client.list_nodes()
    yield from check_nodes(nodes)
    yield from check_versions(nodes, mode.version)
    yield from check_workloads(client.list_workloads())
    yield from check_owners(client)
    try:
        diagnostics = client.get_diagnostics()
    except RefusedError:
        return  # an older scheduler, or the user lacks the permission
    yield from check_errors(diagnostics)
    yield from check_records(diagnostics.quarantined)
    yield from check_violations(diagnostics.policy_violations)


def check_clock(scheduler_time: datetime, before: datetime, after: datetime) -> Finding:
    """Compare the scheduler's clock with that of this machine, tolerating the duration of the request."""
    skew = max(scheduler_time - after, before - scheduler_time, timedelta())
    direction = "ahead of" if scheduler_time > after else "behind"
    text = f"the scheduler's clock is {skew.total_seconds():.1f} s {direction} this machine's"
    if skew >= SKEW_FAIL:
        return fail("clock", text, _CLOCK)
    if skew >= SKEW_WARN:
        return warn("clock", text, _CLOCK)
    return ok("clock", "in sync with the scheduler")


def check_mode(mode: "ModeView") -> Finding:
    if mode.mode == "normal":
        return ok("mode", f"normal, store {mode.store}")
    steps = "; ".join(mode.next_steps) or "`persysctl recovery status` shows details"
    return fail("mode", f"{mode.mode}: {mode.reason or 'no reason given'}", steps)


def check_nodes(nodes: Sequence["NodeView"]) -> Iterator[Finding]:
    if not nodes:
        yield fail(
            "nodes",
            "the cluster has no nodes, so no workload can run",
            "`persysctl token create --role agent --name NODE`, then `persys-agent join` on that host",
        )
        return
    not_ready = [node for node in nodes if node.status.lower() != _READY]
    yield from _not_ready_findings(not_ready)
    ready = [node for node in nodes if node not in not_ready]
    for node in ready[:LISTED_MAX]:
        for problem in node.problems:
            fix = f"on that host: `journalctl -u persys-agent`; `persysctl node get {node.node_id}`"
            yield warn("nodes", f"{node.node_id} {problem}; it gets no new workloads", fix)
    for node in nodes:
        if abs(node.clock_skew_ms) >= SKEW_WARN.total_seconds() * 1000:
            text = (
                f"the clock of {node.node_id} is {node.clock_skew_ms} ms ahead of the scheduler's"
            )
            yield warn("clock", text, _CLOCK)
    cordoned = [node.node_id for node in ready if node.cordoned]
    if len(not_ready) + len(cordoned) == len(nodes):
        fix = (
            f"`persysctl node uncordon {cordoned[0]}`"
            if cordoned
            else "`persysctl node list -o wide` shows the reason of each"
        )
        yield fail("nodes", "no node is ready and schedulable, so no workload can start", fix)
        return
    if cordoned:
        text = f"{', '.join(cordoned[:LISTED_MAX])}: cordoned, so no new workloads are placed there"
        yield warn("nodes", text, f"`persysctl node uncordon {cordoned[0]}`")
    yield ok("nodes", f"{len(ready)} of {len(nodes)} ready")


def _not_ready_findings(nodes: Sequence["NodeView"]) -> Iterator[Finding]:
    """A drain is requested by an operator, so it is not an error."""
    for node in nodes[:LISTED_MAX]:
        text = f"{node.node_id} is {node.status}: {node.status_reason or 'no reason given'}"
        if node.status.lower() == _DRAINING:
            fix = f"`persysctl node uncordon {node.node_id}` ends the drain"
            yield warn("nodes", text, fix)
        else:
            yield fail("nodes", text, NODE_FIX.format(node=node.node_id))
    if len(nodes) > LISTED_MAX:
        more = f"{len(nodes) - LISTED_MAX} more nodes are not ready"
        yield fail("nodes", more, "list them with `persysctl node list --status NotReady`")


def check_versions(nodes: Sequence["NodeView"], scheduler: str) -> Iterator[Finding]:
    """Compare versions. Agents and schedulers of other vendors or of an old version report none."""
    found = {f"agent {node.node_id}": node.agent_version for node in nodes}
    found["scheduler"] = scheduler
    others = sorted(f"{who} {v}" for who, v in found.items() if v not in ("", __version__))
    if others:
        named = ", ".join(others[:LISTED_MAX]) + (" and more" if len(others) > LISTED_MAX else "")
        fix = "adjacent versions are compatible; upgrade all to the same version"
        yield warn("versions", f"persysctl is {__version__}, but {named}", fix)
    else:
        yield ok("versions", f"all reported versions are {__version__}")


def check_workloads(workloads: Sequence["WorkloadView"]) -> Iterator[Finding]:
    """A failed, unhealthy or drifted workload is an error; a pending or unknown one is a warning.

    Members of jobs are reported with their job.
    """
    from persys.cli.commands.workload_status import has_drifted, health_of

    workloads = [each for each in workloads if not each.membership.job_id]
    failed = [
        each
        for each in workloads
        if each.status.lower() == "failed" or health_of(each) == "unhealthy" or has_drifted(each)
    ]
    waiting = [each for each in workloads if each.status.lower() in _WAITING]
    yield from _check_policy(workloads)
    yield from _workload_findings(failed, fail, "failed, are unhealthy or have drifted")
    yield from _workload_findings(waiting, warn, "are pending or unknown")
    if not failed and not waiting:
        yield ok("workloads", f"all {len(workloads)} are in their desired state")


def check_owners(client: "SchedulerClient") -> Iterator[Finding]:
    """A paused rollout, and a job whose last run failed, wait for a person."""
    from persys.cli.commands.set_status import PAUSED, next_command

    try:
        sets, jobs = client.list_sets(), client.list_jobs()
    except RefusedError:
        return  # an older scheduler
    paused = [view for view in sets if view.phase == PAUSED]
    for view in paused[:LISTED_MAX]:
        text = f"the rollout of {view.spec.set_id} is paused: {view.reason or 'by a user'}"
        yield warn("sets", text, next_command(view))
    if len(paused) > LISTED_MAX:
        fix = "list them with `persysctl set list`"
        yield warn("sets", f"{len(paused) - LISTED_MAX} more rollouts are paused", fix)
    failed = [job for job in jobs if job.runs and job.runs[0].state == "Failed"]
    for job in failed[:LISTED_MAX]:
        name, run = job.spec.job_id, job.runs[0]
        text = f"the last run of {name} failed: {run.reason or 'no reason given'}"
        yield warn("jobs", text, f"show its output with `persysctl job logs {name} {run.run_id}`")
    if len(failed) > LISTED_MAX:
        fix = "list them with `persysctl job list`"
        yield warn("jobs", f"the last runs of {len(failed) - LISTED_MAX} more jobs failed", fix)


def _check_policy(workloads: Sequence["WorkloadView"]) -> Iterator[Finding]:
    """Running workloads that the present policy of their node would refuse."""
    found = [each for each in workloads if each.metadata.get(_POLICY_VIOLATION)]
    fix = "change its spec, or the policy of the node: PERSYS_BIND_ROOTS, PERSYS_ALLOW_PRIVILEGED"
    for each in found[:LISTED_MAX]:
        text = f"{each.workload_id} runs, but its next apply is refused"
        yield warn("policy", f"{text}: {each.metadata[_POLICY_VIOLATION]}", fix)
    if len(found) > LISTED_MAX:
        yield warn("policy", f"{len(found) - LISTED_MAX} more would be refused", fix)


def _workload_findings(
    workloads: Sequence["WorkloadView"],
    level: Callable[[str, str, str], Finding],
    what: str,
) -> Iterator[Finding]:
    from persys.cli.commands.workload_status import next_step, reason_text, status_text

    for each in workloads[:LISTED_MAX]:
        reason = reason_text(each) or "no reason given"
        text = f"{each.workload_id} is {status_text(each)}: {reason}"
        yield level("workloads", text, next_step(each))
    more = len(workloads) - LISTED_MAX
    if more > 0:
        fix = "list them with `persysctl workload list`"
        yield level("workloads", f"{more} more {what}", fix)


def check_errors(diagnostics: "DiagnosticsView") -> Iterator[Finding]:
    """Unexpected exceptions of a process, which keeps running; the work for that key failed."""
    found = [("the scheduler", error) for error in diagnostics.internal_errors]
    found += [
        (f"the agent of {node.node_id}", error)
        for node in diagnostics.nodes
        for error in node.internal_errors
    ]
    for whose, error in found[:LISTED_MAX]:
        times = "once" if error.count == 1 else f"{error.count} times"
        key = f" for {error.key}" if error.key else ""
        lines = error.text.strip().splitlines()
        last = lines[-1] if lines else "no text"
        text = f"{whose} failed {times} in {error.where}{key}: {last}"
        yield fail(
            "errors", text, "report it with the traceback from its log: `journalctl -u persys-*`"
        )
    if len(found) > LISTED_MAX:
        more = f"{len(found) - LISTED_MAX} more unexpected errors"
        yield fail("errors", more, "`persysctl doctor` shows the newest; the logs have all")


def check_records(quarantined: Sequence["QuarantinedRecord"]) -> Iterator[Finding]:
    for record in quarantined[:LISTED_MAX]:
        key = record.key
        fix = (
            f"save it with `persysctl record get {key} --export FILE`, then "
            f"`persysctl record delete {key} --confirm`"
        )
        yield fail("store", f"record {key} cannot be read: {record.reason}", fix)
    if len(quarantined) > LISTED_MAX:
        more = f"{len(quarantined) - LISTED_MAX} more records cannot be read"
        yield fail("store", more, "list them with `persysctl record list`")


def check_violations(violations: Sequence["PolicyViolation"]) -> Iterator[Finding]:
    for each in violations[:LISTED_MAX]:
        text = f"{each.workload_id} would be refused by the policy of {each.node_id}: {each.reason}"
        yield warn(
            "policy", text, "change its spec, or allow it on the node, before its next apply"
        )
    if len(violations) > LISTED_MAX:
        more = f"{len(violations) - LISTED_MAX} more would be refused by the policy of their node"
        yield warn("policy", more, "change their specs, or allow it on the nodes")
