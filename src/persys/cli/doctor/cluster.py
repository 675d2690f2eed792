"""The cluster as it answers: its clock, its mode, its nodes, its versions, and what waits."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from persys import __version__
from persys.cli.doctor.verdict import Finding, fail, ok, warn
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
SKEW_FAIL = timedelta(
    seconds=30
)  # a certificate of a minute ago, a lease: both are judged by clocks
NAMED_MAX = 5
_READY = "ready"
_POLICY_VIOLATION = "policy_violation"
_WAITING = frozenset({"pending", "unknown"})
_CLOCK = "keep clocks together with NTP (timedatectl set-ntp true; chronyc tracking)"


def look(client: "SchedulerClient") -> Iterator[Finding]:
    """Raises PersysError."""
    clock = SystemClock()
    before = clock.now()
    summary = client.get_summary()
    after = clock.now()
    yield clock_of(summary.generated_at.ToDatetime(UTC), before, after)
    mode = client.get_mode()
    yield mode_of(mode)
    nodes = client.list_nodes()
    yield from nodes_of(nodes)
    yield from versions_of(nodes, mode.version)
    yield from workloads_of(client.list_workloads())
    try:
        diagnostics = client.get_diagnostics()
    except RefusedError:
        return  # a scheduler of an older version, or the caller may not see it
    yield from errors_of(diagnostics)
    yield from records_of(diagnostics.quarantined)
    yield from violations_of(diagnostics.policy_violations)


def clock_of(told: datetime, before: datetime, after: datetime) -> Finding:
    """How far the scheduler's clock is from here; what the way takes counts for nothing."""
    skew = max(told - after, before - told, timedelta())
    way = "ahead of" if told > after else "behind"
    text = f"the scheduler's clock is {skew.total_seconds():.1f} s {way} this machine's"
    if skew >= SKEW_FAIL:
        return fail("clock", text, _CLOCK)
    if skew >= SKEW_WARN:
        return warn("clock", text, _CLOCK)
    return ok("clock", "as the scheduler's")


def mode_of(mode: "ModeView") -> Finding:
    if mode.mode == "normal":
        return ok("mode", f"normal, store {mode.store}")
    steps = "; ".join(mode.next_steps) or "`persysctl recovery status` says more"
    return fail("mode", f"{mode.mode}: {mode.reason or 'no reason is given'}", steps)


def nodes_of(nodes: Sequence["NodeView"]) -> Iterator[Finding]:
    if not nodes:
        yield fail(
            "nodes",
            "there are none, so nothing can run",
            "`persysctl token create --role agent --name NODE`, then `persys-agent join` there",
        )
        return
    silent = [node for node in nodes if node.status.lower() != _READY]
    for node in silent[:NAMED_MAX]:
        reason = node.status_reason or "no reason is given"
        cure = (
            f"on that machine: systemctl status persys-agent; `persysctl node get {node.node_id}`"
        )
        yield warn("nodes", f"{node.node_id} is {node.status}: {reason}", cure)
    for node in [node for node in nodes if node not in silent][:NAMED_MAX]:
        for problem in node.problems:
            cure = (
                f"on that machine: journalctl -u persys-agent; `persysctl node get {node.node_id}`"
            )
            yield warn("nodes", f"{node.node_id} {problem}; it gets no new work", cure)
    for node in nodes:
        if abs(node.clock_skew_ms) >= SKEW_WARN.total_seconds() * 1000:
            text = (
                f"the clock of {node.node_id} is {node.clock_skew_ms} ms ahead of the scheduler's"
            )
            yield warn("clock", text, _CLOCK)
    if len(silent) == len(nodes):
        yield fail("nodes", "none is ready, so nothing can run", "see the lines above")
    else:
        yield ok("nodes", f"{len(nodes) - len(silent)} of {len(nodes)} ready")


def versions_of(nodes: Sequence["NodeView"], scheduler: str) -> Iterator[Finding]:
    """An empty one is of another make, or older than the question."""
    found = {f"agent {node.node_id}": node.agent_version for node in nodes}
    found["scheduler"] = scheduler
    others = sorted(f"{who} {v}" for who, v in found.items() if v not in ("", __version__))
    if others:
        named = ", ".join(others[:NAMED_MAX]) + (" and more" if len(others) > NAMED_MAX else "")
        cure = "neighbouring versions work together; bring all to one when there is time"
        yield warn("versions", f"persysctl is {__version__}, but {named}", cure)
    else:
        yield ok("versions", f"{__version__} everywhere that says")


def workloads_of(workloads: Sequence["WorkloadView"]) -> Iterator[Finding]:
    """A workload that failed, is unhealthy or has drifted is a problem; one that waits may come up."""
    from persys.cli.advice import has_drifted, health_of

    failed = [
        each
        for each in workloads
        if each.status.lower() == "failed" or health_of(each) == "unhealthy" or has_drifted(each)
    ]
    waiting = [each for each in workloads if each.status.lower() in _WAITING]
    yield from _violations_of(workloads)
    yield from _named(failed, fail, "failed, are unhealthy or have drifted")
    yield from _named(waiting, warn, "wait")
    if not failed and not waiting:
        yield ok("workloads", f"all {len(workloads)} are as they should be")


def _violations_of(workloads: Sequence["WorkloadView"]) -> Iterator[Finding]:
    """Workloads that run from before the policy of their node refused them."""
    found = [each for each in workloads if each.metadata.get(_POLICY_VIOLATION)]
    cure = "change its spec, or the policy of the node: PERSYS_BIND_ROOTS, PERSYS_ALLOW_PRIVILEGED"
    for each in found[:NAMED_MAX]:
        text = f"{each.workload_id} runs, but its next apply is refused"
        yield warn("policy", f"{text}: {each.metadata[_POLICY_VIOLATION]}", cure)
    if len(found) > NAMED_MAX:
        yield warn("policy", f"{len(found) - NAMED_MAX} more would be refused", cure)


def _named(
    workloads: Sequence["WorkloadView"],
    level: Callable[[str, str, str], Finding],
    what: str,
) -> Iterator[Finding]:
    from persys.cli.advice import next_step, status_text

    for each in workloads[:NAMED_MAX]:
        parts = (each.reason.code or each.failure_reason, each.reason.message)
        reason = ": ".join(part for part in parts if part) or "no reason is given"
        text = f"{each.workload_id} is {status_text(each)}: {reason}"
        yield level("workloads", text, next_step(each))
    more = len(workloads) - NAMED_MAX
    if more > 0:
        cure = "`persysctl workload list` names them"
        yield level("workloads", f"{more} more {what}", cure)


def errors_of(diagnostics: "DiagnosticsView") -> Iterator[Finding]:
    """Exceptions that a process contained: it goes on, and the work for that key did not."""
    found = [("the scheduler", error) for error in diagnostics.internal_errors]
    found += [
        (f"the agent of {node.node_id}", error)
        for node in diagnostics.nodes
        for error in node.internal_errors
    ]
    for whose, error in found[:NAMED_MAX]:
        times = "once" if error.count == 1 else f"{error.count} times"
        key = f" for {error.key}" if error.key else ""
        lines = error.text.strip().splitlines()
        last = lines[-1] if lines else "no text"
        text = f"{whose} failed {times} in {error.where}{key}: {last}"
        yield fail("errors", text, "its log has the traceback; report it with that")
    if len(found) > NAMED_MAX:
        more = f"{len(found) - NAMED_MAX} more unexpected errors"
        yield fail("errors", more, "`persysctl doctor` shows the newest; the logs have all")


def records_of(quarantined: Sequence["QuarantinedRecord"]) -> Iterator[Finding]:
    for record in quarantined[:NAMED_MAX]:
        key = record.key
        cure = (
            f"`persysctl record get {key} --export FILE` keeps it; then "
            f"`persysctl record delete {key} --confirm`"
        )
        yield fail("store", f"record {key} cannot be read: {record.reason}", cure)
    if len(quarantined) > NAMED_MAX:
        more = f"{len(quarantined) - NAMED_MAX} more records cannot be read"
        yield fail("store", more, "`persysctl record list` names them")


def violations_of(violations: Sequence["PolicyViolation"]) -> Iterator[Finding]:
    for each in violations[:NAMED_MAX]:
        text = f"{each.workload_id} would be refused by the policy of {each.node_id}: {each.reason}"
        yield warn(
            "policy", text, "change its spec, or allow it on the node, before its next apply"
        )
    if len(violations) > NAMED_MAX:
        more = f"{len(violations) - NAMED_MAX} more would be refused by the policy of their node"
        yield warn("policy", more, "change their specs, or allow it on the nodes")
