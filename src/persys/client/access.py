"""Calls into workloads: what they write, and commands inside them. They last as long as the caller likes."""

from collections.abc import Iterator
from datetime import datetime

from persys.client.call import our_errors
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class AccessCalls(SchedulerCalls):
    def stream_logs(
        self,
        workload_id: str,
        *,
        service: str = "",
        follow: bool = False,
        since: datetime | None = None,
        tail: int = 0,
        previous: bool = False,
        timestamps: bool = False,
    ) -> Iterator[pb.LogChunk]:
        """`tail` 0: all. Ends when all is told, or with `follow` when the workload ends."""
        request = pb.LogsRequest(
            workload_id=workload_id,
            service=service,
            follow=follow,
            tail=tail,
            previous=previous,
            timestamps=timestamps,
        )
        if since is not None:
            request.since.FromDatetime(since)
        with our_errors():
            yield from self._stub.StreamLogs(request)

    def exec(self, inputs: Iterator[pb.ExecInput]) -> Iterator[pb.ExecOutput]:
        """`inputs` begins with `start`, and is read by a thread of its own. The last answer has the exit.

        The first answer is empty: more than `start` is taken only after it.
        """
        with our_errors():
            yield from self._stub.Exec(inputs)
