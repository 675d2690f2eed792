"""List and watch events."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from persys.client.call import call, our_errors, rpc_error
from persys.client.calls import SchedulerCalls
from persys.errors import PersysError
from persys.wire.gen.control.v1 import control_pb2 as pb

if TYPE_CHECKING:
    import grpc

# The watch is renewed after this time: a dead peer would not end it.
ROUND = timedelta(seconds=60)


class EventCalls(SchedulerCalls):
    def list_events(
        self,
        *,
        workload_id: str = "",
        node_id: str = "",
        kinds: Iterable[str] = (),
        since: datetime | None = None,
        after: int = 0,
        limit: int = 0,
    ) -> pb.ListEventsResponse:
        """Oldest first. `limit` 0: all stored events."""
        request = pb.ListEventsRequest(
            workload_id=workload_id,
            node_id=node_id,
            kinds=kinds,
            after_sequence=after,
            limit=limit,
        )
        if since is not None:
            request.since.FromDatetime(since)
        response: pb.ListEventsResponse = call(
            self._stub.ListEvents, request, timeout=self._timeout
        )
        return response

    def watch_events(
        self, *, after: int, workload_id: str = "", node_id: str = "", kinds: Iterable[str] = ()
    ) -> Iterator[pb.EventView]:
        """Stream events. Raises UnavailableError when the connection is lost.

        Bookmarks are events with a sequence and no kind. To resume, pass the last received sequence as
        `after`. OutOfRangeError: the following events are no longer stored.
        """
        request = pb.WatchEventsRequest(
            workload_id=workload_id, node_id=node_id, kinds=kinds, bookmarks=True
        )
        while True:
            request.after_sequence = after
            with our_errors(), _in_rounds():
                for event in self._stub.WatchEvents(request, timeout=ROUND.total_seconds()):
                    after = event.sequence
                    yield event
            self.list_events(limit=1)  # raises UnavailableError if the peer is gone


@contextmanager
def _in_rounds() -> Iterator[None]:
    """Ignore DEADLINE_EXCEEDED: the watch is renewed."""
    try:
        yield
    except PersysError:
        raise
    except rpc_error() as err:
        answer = cast("grpc.Call", err)
        if answer.code().name != "DEADLINE_EXCEEDED":
            raise
