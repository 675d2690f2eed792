"""Workloads: apply, delete, retry, redeploy, read, explain and plan them; suggestions of automation policies.

Changes refuse with OK and a reason in the response, because existing clients read it there. Only an empty id
is INVALID_ARGUMENT, and a scheduler that has lost leadership is UNAVAILABLE. ApplyWorkloads has a result for
each workload. Reads refuse with status codes.
"""

from collections.abc import Callable
from datetime import timedelta

from persys.core.reconcile.situation import Policy
from persys.errors import InvalidError, PersysError, RefusedError
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CALLER
from persys.model.ids import WorkloadId
from persys.model.status import FailureReason
from persys.model.workload import SuggestionDecision, Workload
from persys.scheduler.api.methods import Context, need
from persys.scheduler.auth.prefix_scope import current_prefix
from persys.scheduler.queries.explain import Explainer
from persys.scheduler.queries.plan import CompleteSituation, PlanBuilder
from persys.scheduler.queries.set_plan import SetPlanner
from persys.scheduler.queries.views import Queries
from persys.scheduler.reconcile.intent import IntentService
from persys.scheduler.reconcile.suggestions import Suggestions
from persys.scheduler.sets.set_views import SetExplained
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control import messages as control_messages
from persys.wire.control.views import (
    DECISIONS,
    decision_message,
    decision_of,
    suggestion,
    suggestion_view,
)
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import NAME, SENTENCE


class WorkloadsApi:
    def __init__(self, intents: IntentService, queries: Queries) -> None:
        self._intents = intents
        self._queries = queries

    async def ApplyWorkload(
        self, request: control_pb2.ApplyWorkloadRequest, context: Context
    ) -> control_pb2.ApplyWorkloadResponse:
        need(request.workload_id, "workload_id")
        workload = await self._intents.apply(request, prefix=current_prefix())
        return control_pb2.ApplyWorkloadResponse(success=True, revision_id=workload.revision)

    async def ApplyWorkloads(
        self, request: control_pb2.ApplyWorkloadsRequest, context: Context
    ) -> control_pb2.ApplyWorkloadsResponse:
        results = await self._intents.apply_all(request.workloads, prefix=current_prefix())
        return control_pb2.ApplyWorkloadsResponse(
            accepted=True,
            results=[
                _applied(one.workload_id, result)
                for one, result in zip(request.workloads, results, strict=True)
            ],
        )

    async def DeleteWorkload(
        self, request: control_pb2.DeleteWorkloadRequest, context: Context
    ) -> control_pb2.DeleteWorkloadResponse:
        need(request.workload_id, "workload_id")
        await self._intents.delete(request)
        return control_pb2.DeleteWorkloadResponse(success=True)

    async def RetryWorkload(
        self, request: control_pb2.RetryWorkloadRequest, context: Context
    ) -> control_pb2.RetryWorkloadResponse:
        need(request.workload_id, "workload_id")
        await self._intents.retry(request)
        return control_pb2.RetryWorkloadResponse(accepted=True)

    async def RedeployWorkload(
        self, request: control_pb2.RedeployWorkloadRequest, context: Context
    ) -> control_pb2.RedeployWorkloadResponse:
        need(request.workload_id, "workload_id")
        workload = await self._intents.redeploy(request)
        return control_pb2.RedeployWorkloadResponse(accepted=True, revision_id=workload.revision)

    async def ListWorkloads(
        self, request: control_pb2.ListWorkloadsRequest, context: Context
    ) -> control_pb2.ListWorkloadsResponse:
        return control_pb2.ListWorkloadsResponse(
            workloads=self._queries.list_workloads(node_id=request.node_id, status=request.status)
        )

    async def GetWorkload(
        self, request: control_pb2.GetWorkloadRequest, context: Context
    ) -> control_pb2.GetWorkloadResponse:
        need(request.workload_id, "workload_id")
        return control_pb2.GetWorkloadResponse(
            workload=self._queries.get_workload(request.workload_id)
        )

    async def GetWorkloads(
        self, request: control_pb2.GetWorkloadsRequest, context: Context
    ) -> control_pb2.GetWorkloadsResponse:
        views = self._queries.get_workloads(request.workload_ids)
        return control_pb2.GetWorkloadsResponse(
            found=[control_pb2.GetWorkloadResponse(workload=view) for view in views]
        )

    async def GetClusterSummary(
        self, request: control_pb2.GetClusterSummaryRequest, context: Context
    ) -> control_pb2.GetClusterSummaryResponse:
        return self._queries.summary()


def _applied(workload_id: str, result: Workload | PersysError) -> control_pb2.WorkloadApplied:
    if isinstance(result, PersysError):
        reason = FailureReason.INVALID_SPEC if isinstance(result, RefusedError) else None
        return control_pb2.WorkloadApplied(
            workload_id=workload_id[:NAME],
            error_message=str(result)[:SENTENCE],
            failure_reason=control_messages.failure_enum(reason),
        )
    return control_pb2.WorkloadApplied(
        workload_id=workload_id, success=True, revision_id=result.revision
    )


class PlanningApi:
    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        *,
        complete_situation: CompleteSituation,
        policy: Policy,
        lease: timedelta,
        growth: Callable[[WorkloadId], str],
        explain_set: Callable[[str], SetExplained | None],
        set_planner: SetPlanner,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._complete_situation = complete_situation
        self._policy = policy
        self._lease = lease
        self._set_planner = set_planner
        self._explainer = Explainer(
            cluster, complete_situation, clock, growth=growth, explain_set=explain_set
        )

    async def ExplainWorkload(
        self, request: control_pb2.ExplainWorkloadRequest, context: Context
    ) -> control_pb2.ExplainWorkloadResponse:
        need(request.workload_id, "workload_id")
        return await self._explainer.explain(request.workload_id, limit=max(0, request.limit))

    async def PlanWorkloads(
        self, request: control_pb2.PlanWorkloadsRequest, context: Context
    ) -> control_pb2.PlanWorkloadsResponse:
        planning = PlanBuilder(
            self._cluster,
            self._complete_situation,
            self._policy,
            now=self._clock.now(),
            lease=self._lease,
            prefix=current_prefix(),
        )
        slices = TimeSlice(self._clock)
        plans = await planning.plan_all(request.workloads, slices)
        for one in request.sets:
            plans += await self._set_planner.plan(one, planning, slices, prefix=current_prefix())
        return control_pb2.PlanWorkloadsResponse(plans=plans)

    async def GetCapacity(
        self, request: control_pb2.GetCapacityRequest, context: Context
    ) -> control_pb2.GetCapacityResponse:
        return await self._explainer.capacity(request.spec)


class SuggestionsApi:
    def __init__(self, suggestions: Suggestions, clock: Clock) -> None:
        self._suggestions = suggestions
        self._clock = clock

    async def SubmitAutomationSuggestion(
        self, request: control_pb2.SubmitAutomationSuggestionRequest, context: Context
    ) -> control_pb2.SubmitAutomationSuggestionResponse:
        """A rejection is a decision too, not an error."""
        submitted = suggestion(request.suggestion)
        return decision_message(await self._suggestions.submit(submitted, CALLER.get()))

    async def ListSuggestions(
        self, request: control_pb2.ListSuggestionsRequest, context: Context
    ) -> control_pb2.ListSuggestionsResponse:
        if request.decision and request.decision not in DECISIONS:
            raise InvalidError(
                "decision", f"{request.decision[:80]!r}: expected {', '.join(DECISIONS)}"
            )
        if request.limit < 0:
            raise InvalidError(
                "limit", f"{request.limit}: expected 0 for all, or a positive number"
            )
        now = self._clock.now()
        found = [
            suggestion_view(decision, now)
            for decision in self._suggestions.all()
            if request.decision in ("", decision_of(decision, now))
        ]
        return control_pb2.ListSuggestionsResponse(suggestions=found[: request.limit or None])

    async def ApproveSuggestion(
        self, request: control_pb2.SuggestionRequest, context: Context
    ) -> control_pb2.SuggestionAnswer:
        need(request.suggestion_id, "suggestion_id")
        decision = await self._suggestions.approve(request.suggestion_id, CALLER.get())
        return self._answer(decision, done=decision.accepted)

    async def RejectSuggestion(
        self, request: control_pb2.SuggestionRequest, context: Context
    ) -> control_pb2.SuggestionAnswer:
        need(request.suggestion_id, "suggestion_id")
        decision = await self._suggestions.reject(request.suggestion_id, CALLER.get())
        return self._answer(decision, done=True)

    def _answer(self, decision: SuggestionDecision, *, done: bool) -> control_pb2.SuggestionAnswer:
        return control_pb2.SuggestionAnswer(
            accepted=done,
            reason="" if done else decision.reason,
            suggestion=suggestion_view(decision, self._clock.now()),
        )
