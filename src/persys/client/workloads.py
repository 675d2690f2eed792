"""Workloads: apply and delete, logs, exec, ports and files, volumes, images, suggestions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from threading import Event
from typing import Any, BinaryIO

from persys.client.calls import SchedulerCalls
from persys.client.grpc.channel import RequestRefusedError, call, translated_errors
from persys.errors import RefusedError
from persys.wire.gen.control.v1 import control_pb2 as pb

PART_BYTES = 256 * 1024
# Of one call that applies many workloads. A scheduler takes 1,000 workloads and 4 MiB.
BATCH_MAX = 500
BATCH_BYTES_MAX = 2 * 1024 * 1024
BATCH_TIMEOUT = timedelta(seconds=30)


class WorkloadCalls(SchedulerCalls):
    def list_workloads(self, *, node_id: str = "", status: str = "") -> list[pb.WorkloadView]:
        request = pb.ListWorkloadsRequest(node_id=node_id, status=status)
        response: pb.ListWorkloadsResponse = call(
            self._stub.ListWorkloads, request, timeout=self._timeout
        )
        return list(response.workloads)

    def get_workload(self, workload_id: str) -> pb.WorkloadView:
        request = pb.GetWorkloadRequest(workload_id=workload_id)
        response: pb.GetWorkloadResponse = call(
            self._stub.GetWorkload, request, timeout=self._timeout
        )
        return response.workload

    def get_summary(self) -> pb.GetClusterSummaryResponse:
        response: pb.GetClusterSummaryResponse = call(
            self._stub.GetClusterSummary, pb.GetClusterSummaryRequest(), timeout=self._timeout
        )
        return response

    def apply(self, request: pb.ApplyWorkloadRequest) -> str:
        """Create or update a workload. Returns its new revision ("" from older schedulers)."""
        response: pb.ApplyWorkloadResponse = call(
            self._stub.ApplyWorkload, request, timeout=self._timeout
        )
        if not response.success:
            raise _refusal(response)
        return response.revision_id

    def apply_all(
        self, requests: Sequence[pb.ApplyWorkloadRequest]
    ) -> list[str | RequestRefusedError]:
        """Create or update workloads with different ids, many per call.

        Returns the new revision or the refusal of each, in the same sequence. After UnavailableError some may
        have been applied; a repeated call changes them no further.
        """
        return [result for batch in _batches(requests) for result in self._apply_batch(batch)]

    def _apply_batch(
        self, batch: Sequence[pb.ApplyWorkloadRequest]
    ) -> list[str | RequestRefusedError]:
        if len(batch) > 1:
            try:
                response: pb.ApplyWorkloadsResponse = call(
                    self._stub.ApplyWorkloads,
                    pb.ApplyWorkloadsRequest(workloads=batch),
                    timeout=max(self._timeout, BATCH_TIMEOUT),
                )
            except RefusedError:
                pass  # of an older version, or refused as a whole: single calls tell the reason of each
            else:
                if response.accepted:
                    return [
                        one.revision_id if one.success else _refusal(one)
                        for one in response.results
                    ]
        return [self._apply_single(request) for request in batch]

    def _apply_single(self, request: pb.ApplyWorkloadRequest) -> str | RequestRefusedError:
        try:
            return self.apply(request)
        except RequestRefusedError as err:
            return err
        except RefusedError as err:
            return RequestRefusedError(str(err))

    def set_desired_state(self, workload_id: str, desired_state: str) -> str:
        """Start or stop an existing workload at its current revision."""
        return self.apply(
            pb.ApplyWorkloadRequest(workload_id=workload_id, desired_state=desired_state)
        )

    def delete(self, workload_id: str) -> None:
        """Returns when the request is stored; get_workload raises NotFoundError after the deletion."""
        request = pb.DeleteWorkloadRequest(workload_id=workload_id)
        response: pb.DeleteWorkloadResponse = call(
            self._stub.DeleteWorkload, request, timeout=self._timeout
        )
        if not response.success:
            raise RequestRefusedError(response.error_message)

    def retry(self, workload_id: str) -> None:
        request = pb.RetryWorkloadRequest(workload_id=workload_id)
        response: pb.RetryWorkloadResponse = call(
            self._stub.RetryWorkload, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(
                response.reason or "refused by the scheduler without a reason"
            )

    def redeploy(self, workload_id: str) -> str:
        """Redeploy with the current commit or image tag. Returns the new revision."""
        request = pb.RedeployWorkloadRequest(workload_id=workload_id)
        response: pb.RedeployWorkloadResponse = call(
            self._stub.RedeployWorkload, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(
                response.reason or "refused by the scheduler without a reason"
            )
        return response.revision_id

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
        with translated_errors():
            yield from self._stub.StreamLogs(request)

    def exec(self, inputs: Iterator[pb.ExecInput]) -> Iterator[pb.ExecOutput]:
        """Run a command. The first input is `start`; the last output has `exit`.

        `inputs` is read by another thread. The first output is empty: further inputs are read after it.
        """
        with translated_errors():
            yield from self._stub.Exec(inputs)

    def port_forward(self, inputs: Iterator[pb.ForwardInput]) -> Iterator[pb.ForwardOutput]:
        """One connection to a port of a workload, as with exec. `closed` ends one direction.

        Closing the iterator ends the connection.
        """
        yield from self._session(self._stub.PortForward, inputs)

    def copy_files(self, inputs: Iterator[pb.CopyInput]) -> Iterator[pb.CopyOutput]:
        """Files of a container as a tar archive, as with exec. Complete if the last output has `closed`."""
        yield from self._session(self._stub.CopyFiles, inputs)

    def _session(self, open_call: Callable[..., Any], inputs: Iterator[Any]) -> Iterator[Any]:
        with translated_errors():
            call = open_call(inputs)
            try:
                yield from call
            finally:
                end = getattr(call, "cancel", None) or call.close
                end()

    def list_volumes(
        self, *, node_id: str = "", workload_id: str = "", name: str = ""
    ) -> pb.ListVolumesResponse:
        """Includes the nodes that did not respond; they may have volumes too."""
        request = pb.ListVolumesRequest(node_id=node_id, workload_id=workload_id, name=name)
        response: pb.ListVolumesResponse = call(
            self._stub.ListVolumes, request, timeout=self._timeout
        )
        return response

    def delete_volume(self, workload_id: str, name: str, *, node_id: str = "") -> None:
        """Delete a volume and its data. Refused while its workload uses it."""
        request = pb.DeleteVolumeRequest(node_id=node_id, workload_id=workload_id, name=name)
        response = call(self._stub.DeleteVolume, request, timeout=self._timeout)
        if not response.success:
            raise RequestRefusedError(response.error_message)

    def list_images(self, *, name: str = "", node_id: str = "") -> pb.ListImagesResponse:
        """Includes the nodes that did not respond; they may have images too."""
        request = pb.ListImagesRequest(name=name, node_id=node_id)
        response: pb.ListImagesResponse = call(
            self._stub.ListImages, request, timeout=self._timeout
        )
        return response

    def add_image(
        self,
        name: str,
        content: BinaryIO | None = None,
        *,
        url: str = "",
        sha256: str = "",
        node_ids: Iterable[str] = (),
        size_bytes: int = 0,
    ) -> Iterator[pb.ImageProgress]:
        """Add an image from an open file, or from a URL that the nodes download.

        Yields the progress of each node. The last message of a node has `done`, and `problem` on failure.
        """
        start = pb.AddImageStart(
            name=name, url=url, sha256=sha256, node_ids=list(node_ids), size_bytes=size_bytes
        )
        begun, over = Event(), Event()
        with translated_errors():
            try:
                for progress in self._stub.AddImage(_requests(start, content, begun, over)):
                    begun.set()
                    if progress.node_id:
                        yield progress
                    elif progress.done:
                        over.set()
            finally:
                over.set()
                begun.set()

    def remove_image(self, name: str, *, node_ids: Iterable[str] = ()) -> pb.RemoveImageResponse:
        """The response lists as problems the nodes that could not remove it."""
        request = pb.RemoveImageRequest(name=name, node_ids=list(node_ids))
        response: pb.RemoveImageResponse = call(
            self._stub.RemoveImage, request, timeout=self._timeout
        )
        return response

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


def _refusal(response: pb.ApplyWorkloadResponse | pb.WorkloadApplied) -> RequestRefusedError:
    reason = pb.FailureReason.Name(response.failure_reason) if response.failure_reason else ""
    return RequestRefusedError(response.error_message or reason, reason=reason)


def _batches(
    requests: Sequence[pb.ApplyWorkloadRequest],
) -> Iterator[Sequence[pb.ApplyWorkloadRequest]]:
    """Batches within the limits of a request. A workload beyond them is alone in its batch."""
    batch: list[pb.ApplyWorkloadRequest] = []
    size = 0
    for request in requests:
        more = request.ByteSize()
        if batch and (size + more > BATCH_BYTES_MAX or len(batch) >= BATCH_MAX):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += more
    if batch:
        yield batch


def _requests(
    start: pb.AddImageStart, content: BinaryIO | None, begun: Event, over: Event
) -> Iterator[pb.AddImageRequest]:
    """Iterated by a gRPC thread, which takes the next request when the previous one was sent."""
    yield pb.AddImageRequest(start=start)
    begun.wait()
    while content is not None and not over.is_set() and (data := content.read(PART_BYTES)):
        yield pb.AddImageRequest(data=data)
