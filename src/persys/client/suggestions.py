"""Suggestions of automation policies."""

from collections.abc import Callable

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class SuggestionCalls(SchedulerCalls):
    def suggest(self, suggestion: pb.AutomationSuggestion) -> pb.SubmitAutomationSuggestionResponse:
        """Submit a suggestion. A rejection is a normal response, not an error."""
        request = pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)
        response: pb.SubmitAutomationSuggestionResponse = call(
            self._stub.SubmitAutomationSuggestion, request, timeout=self._timeout
        )
        return response

    def list_suggestions(self, *, decision: str = "", limit: int = 0) -> list[pb.SuggestionView]:
        """Newest first. `decision`: accepted, rejected or pending."""
        request = pb.ListSuggestionsRequest(decision=decision, limit=limit)
        response: pb.ListSuggestionsResponse = call(
            self._stub.ListSuggestions, request, timeout=self._timeout
        )
        return list(response.suggestions)

    def approve_suggestion(self, suggestion_id: str) -> pb.SuggestionView:
        """Needs the permission of the suggested action. Raises RequestRefusedError."""
        return self._decide(self._stub.ApproveSuggestion, suggestion_id)

    def reject_suggestion(self, suggestion_id: str) -> pb.SuggestionView:
        return self._decide(self._stub.RejectSuggestion, suggestion_id)

    def _decide(
        self, method: Callable[..., pb.SuggestionAnswer], suggestion_id: str
    ) -> pb.SuggestionView:
        request = pb.SuggestionRequest(suggestion_id=suggestion_id)
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.suggestion
