"""Logs of workloads, and commands inside them. These calls have no deadline."""

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
        """`tail` 0: all lines. Ends after the last line, or with `follow` when the workload ends."""
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
        """Run a command. The first input is `start`; the last output has `exit`.

        `inputs` is read by another thread. The first output is empty: further inputs are read after it.
        """
        with our_errors():
            yield from self._stub.Exec(inputs)
