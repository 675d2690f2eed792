"""Events: list them, or watch new ones."""

from collections.abc import AsyncIterator

from persys.errors import InvalidError, RefusedError
from persys.scheduler.api.context import Context
from persys.scheduler.state.event_log import Bookmark, EventLog, Filter
from persys.wire.control.views import event_kinds, event_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import instant

# Below the maximum message size of clients.
ANSWER_BYTES_MAX = 7 * 1024 * 1024


class EventsApi:
    def __init__(self, events: EventLog) -> None:
        self._events = events

    async def ListEvents(
        self, request: control_pb2.ListEventsRequest, context: Context
    ) -> control_pb2.ListEventsResponse:
        if request.limit < 0:
            raise InvalidError(
                "limit", f"{request.limit}: expected 0 for all, or a positive number"
            )
        wanted = Filter(
            request.workload_id,
            request.node_id,
            event_kinds(request.kinds),
            instant(request.since) if request.HasField("since") else None,
        )
        found = self._events.listed(wanted, after=request.after_sequence, limit=request.limit)
        answer = control_pb2.ListEventsResponse(
            events=[event_message(numbered) for numbered in found],
            last_sequence=self._events.last_sequence,
            first_sequence=self._events.first_sequence,
        )
        if answer.ByteSize() > ANSWER_BYTES_MAX:
            raise RefusedError(
                f"{len(found)} events exceed the size of one response ({ANSWER_BYTES_MAX} bytes); "
                "request fewer with a limit or a filter"
            )
        return answer

    async def WatchEvents(
        self, request: control_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[control_pb2.EventView]:
        wanted = Filter(request.workload_id, request.node_id, event_kinds(request.kinds))
        after = request.after_sequence if request.HasField("after_sequence") else None
        async for found in self._events.watch(wanted, after=after, bookmarks=request.bookmarks):
            if isinstance(found, Bookmark):
                yield control_pb2.EventView(sequence=found.sequence)
            else:
                yield event_message(found)
