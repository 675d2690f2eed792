"""Counters and histograms of the scheduler. Gauges, computed at scrape time, are in `gauges.py`.

Every label has a closed set of values: a method, a code, a result, a kind.
Some metrics have a second name, which existing dashboards and alerts use.
"""

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from persys.infra.telemetry.call_metrics import SECONDS, CallMetrics, SecondName
from persys.model.event import EventKind, NumberedEvent
from persys.model.job import RunState

# The names that existing dashboards use, without the prefix.
SECOND_NAMES = {
    "grpc_requests": "grpc_server_requests",
    "grpc_request_seconds": "grpc_server_request_duration_seconds",
    "agent_requests": "agent_rpc_requests",
    "agent_request_seconds": "agent_rpc_duration_seconds",
    "reconciliations": "reconciliation_results",
    "nodes": "nodes_status",
    "workloads": "workloads_status",
}
DNS_RESULTS = ("answered", "empty", "missing", "refused", "invalid", "dropped")
CHANGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_ROLLOUTS = {
    EventKind.ROLLOUT_COMPLETED: "completed",
    EventKind.ROLLOUT_ROLLED_BACK: "rolled_back",
    EventKind.ROLLOUT_PAUSED: "paused",
}


class Result(StrEnum):
    """The result of one reconciliation of one workload."""

    UNCHANGED = "unchanged"
    WRITTEN = "written"
    CONFLICT = "conflict"  # a record that the decision relied on has changed
    REFUSED = "refused"  # the record cannot be stored
    UNAVAILABLE = "unavailable"  # the store does not reply


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._answered = CallMetrics(
            self._counter("grpc_requests", "RPCs handled", "method", "code"),
            self._histogram("grpc_request_seconds", "Time to handle an RPC", "method", "code"),
        )
        self._sent = CallMetrics(
            self._counter("agent_requests", "Calls to agents that have ended", "method", "code"),
            self._histogram(
                "agent_request_seconds", "Time until a call to an agent ended", "method", "code"
            ),
        )
        reconciliations = self._counter(
            "reconciliations", "Reconciliations of one workload, by result", "result"
        )
        self._reconciliations = {result: reconciliations.labels(result) for result in Result}
        self._reconciliation_seconds = self._histogram(
            "reconciliation_seconds", "Time to reconcile one workload, with its commit"
        )
        self._retries = self._counter("retries", "Retries scheduled after a failure")
        self._denials = self._counter("denied", "RPCs denied by authorization", "role", "method")
        self._ignored_reports = self._counter(
            "ignored_reports", "Reports of nodes about workloads that are not assigned to them"
        )
        self._limited = self._counter(
            "limited_fields", "Fields of reports that exceeded a limit: cut or dropped", "field"
        )
        commits = self._counter("commits", "Changes submitted to the store", "outcome")
        self._stored = commits.labels("stored")
        self._conflicts = commits.labels("conflict")
        self._failed = commits.labels("failed")
        self._commit_seconds = self._histogram(
            "commit_seconds", "Time the store took for a batch of changes"
        )
        self._commit_changes = self._histogram(
            "commit_changes", "Changes that shared a batch", buckets=CHANGES
        )
        self._pool_creates = self._counter(
            "nodepool_creates", "Create calls to the providers of node pools", "pool"
        )
        self._pool_failures = self._counter(
            "nodepool_failures", "Calls to the providers of node pools that failed", "pool", "call"
        )
        rollouts = self._counter("rollouts", "Rollouts of sets, by result", "result")
        self._rollouts = {kind: rollouts.labels(result) for kind, result in _ROLLOUTS.items()}
        runs = self._counter("job_runs", "Runs of jobs that have ended, by result", "result")
        self._job_runs: dict[RunState, Counter] = {
            state: runs.labels(state.lower()) for state in RunState if state is not RunState.RUNNING
        }
        answers = self._counter("dns_queries", "DNS queries to this scheduler, by result", "result")
        self._dns_answers = {word: answers.labels(word) for word in DNS_RESULTS}
        events = self._counter("events", "Events written", "kind")
        self._events = {kind: events.labels(kind) for kind in EventKind}
        self._other_events = events.labels("other")

    def expect(self, method: str) -> None:
        """Export a method before its first call, so that the first call is an increase."""
        self._answered.expect(method)

    def answered(self, method: str, code: str, seconds: float) -> None:
        self._answered.add(method, code, seconds)

    def streamed(self, method: str, code: str) -> None:
        """Streams are counted but not timed: the client decides how long they last."""
        self._answered.count(method, code)

    def sent(self, method: str, code: str, seconds: float | None) -> None:
        """`seconds` None: counted but not timed."""
        if seconds is None:
            self._sent.count(method, code)
        else:
            self._sent.add(method, code, seconds)

    def reconciled(self, result: Result, seconds: float) -> None:
        self._reconciliations[result].inc()
        self._reconciliation_seconds.observe(seconds)

    def pool_create(self, pool_id: str) -> None:
        self._pool_creates.labels(pool_id).inc()

    def pool_call_failed(self, pool_id: str, call: str) -> None:
        """`call`: list, create or destroy."""
        self._pool_failures.labels(pool_id, call).inc()

    def rollout_changed(self, kind: EventKind) -> None:
        """Counts the events that end a rollout or pause it; others are ignored."""
        if (counter := self._rollouts.get(kind)) is not None:
            counter.inc()

    def run_ended(self, state: RunState) -> None:
        self._job_runs[state].inc()

    def dns_answered(self, result: str) -> None:
        self._dns_answers[result].inc()

    def denied(self, role: str, method: str) -> None:
        self._denials.labels(role, method).inc()

    def report_ignored(self) -> None:
        self._ignored_reports.inc()

    def limited(self, field: str, count: int) -> None:
        """`field` is a message and a field of the contract."""
        self._limited.labels(field).inc(count)

    def retry_planned(self) -> None:
        self._retries.inc()

    def committed(
        self, *, seconds: float, stored: int = 0, conflicts: int = 0, failed: int = 0
    ) -> None:
        self._commit_seconds.observe(seconds)
        self._commit_changes.observe(stored + conflicts + failed)
        self._stored.inc(stored)
        self._conflicts.inc(conflicts)
        self._failed.inc(failed)

    def events_written(self, events: Iterable[NumberedEvent]) -> None:
        for _, event in events:
            self._events.get(event.kind, self._other_events).inc()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        counter = Counter(f"persys_scheduler_{name}", about, labels, registry=self.registry)
        self._name_again(name, counter)
        return counter

    def _histogram(
        self, name: str, about: str, *labels: str, buckets: tuple[float, ...] = SECONDS
    ) -> Histogram:
        histogram = Histogram(
            f"persys_scheduler_{name}", about, labels, buckets=buckets, registry=self.registry
        )
        self._name_again(name, histogram)
        return histogram

    def _name_again(self, name: str, metric: Counter | Histogram) -> None:
        if (second := SECOND_NAMES.get(name)) is not None:
            self.registry.register(SecondName(metric, f"persys_scheduler_{second}"))
