"""Suggestions of automation policies: every ruling is an answer, also a rejection."""

from persys.scheduler.api.service import Context
from persys.scheduler.suggestions import Suggestions
from persys.wire.automation import ruling_message, suggestion
from persys.wire.gen.control.v1 import control_pb2


class AutomationApi:
    def __init__(self, suggestions: Suggestions) -> None:
        self._suggestions = suggestions

    async def SubmitAutomationSuggestion(
        self, request: control_pb2.SubmitAutomationSuggestionRequest, context: Context
    ) -> control_pb2.SubmitAutomationSuggestionResponse:
        return ruling_message(await self._suggestions.submit(suggestion(request.suggestion)))
