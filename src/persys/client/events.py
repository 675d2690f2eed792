"""Calls about events."""

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

# A stream that says nothing for so long is asked for anew: its scheduler may be gone without a word.
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
        """Oldest first. `limit` 0: all that are kept."""
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
        """Events as they happen, until the connection breaks: then UnavailableError.

        Among them are bookmarks, which have a sequence and no kind. After a break go on from the last
        sequence that came. OutOfRangeError: what comes next is no longer kept.
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
            self.list_events(limit=1)  # nobody there does not answer this either


@contextmanager
def _in_rounds() -> Iterator[None]:
    """That a round is over is no error."""
    try:
        yield
    except PersysError:
        raise
    except rpc_error() as err:
        answer = cast("grpc.Call", err)
        if answer.code().name != "DEADLINE_EXCEEDED":
            raise
