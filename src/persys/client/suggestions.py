"""Calls of automations: they propose, policy decides."""

from persys.client.call import call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class SuggestionCalls(SchedulerCalls):
    def suggest(self, suggestion: pb.AutomationSuggestion) -> pb.SubmitAutomationSuggestionResponse:
        """What became of it, also when it was rejected: that is no error."""
        request = pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)
        response: pb.SubmitAutomationSuggestionResponse = call(
            self._stub.SubmitAutomationSuggestion, request, timeout=self._timeout
        )
        return response
