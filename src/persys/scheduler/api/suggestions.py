"""Suggestions of automation policies, and the approval of those that the sender may not apply."""

from persys.errors import InvalidError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CALLER
from persys.model.workload import SuggestionDecision
from persys.scheduler.api.context import Context, need
from persys.scheduler.reconcile.suggestions import Suggestions
from persys.wire.control.views import (
    DECISIONS,
    decision_of,
    ruling_message,
    suggestion,
    suggestion_view,
)
from persys.wire.gen.control.v1 import control_pb2


class SuggestionsApi:
    def __init__(self, suggestions: Suggestions, clock: Clock) -> None:
        self._suggestions = suggestions
        self._clock = clock

    async def SubmitAutomationSuggestion(
        self, request: control_pb2.SubmitAutomationSuggestionRequest, context: Context
    ) -> control_pb2.SubmitAutomationSuggestionResponse:
        """A rejection is a decision too, not an error."""
        submitted = suggestion(request.suggestion)
        return ruling_message(await self._suggestions.submit(submitted, CALLER.get()))

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
            suggestion_view(ruling, now)
            for ruling in self._suggestions.all()
            if request.decision in ("", decision_of(ruling, now))
        ]
        return control_pb2.ListSuggestionsResponse(suggestions=found[: request.limit or None])

    async def ApproveSuggestion(
        self, request: control_pb2.SuggestionRequest, context: Context
    ) -> control_pb2.SuggestionAnswer:
        need(request.suggestion_id, "suggestion_id")
        ruling = await self._suggestions.approve(request.suggestion_id, CALLER.get())
        return self._answer(ruling, done=ruling.accepted)

    async def RejectSuggestion(
        self, request: control_pb2.SuggestionRequest, context: Context
    ) -> control_pb2.SuggestionAnswer:
        need(request.suggestion_id, "suggestion_id")
        ruling = await self._suggestions.reject(request.suggestion_id, CALLER.get())
        return self._answer(ruling, done=True)

    def _answer(self, ruling: SuggestionDecision, *, done: bool) -> control_pb2.SuggestionAnswer:
        return control_pb2.SuggestionAnswer(
            accepted=done,
            reason="" if done else ruling.reason,
            suggestion=suggestion_view(ruling, self._clock.now()),
        )
