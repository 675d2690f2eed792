"""VM images."""

from collections.abc import Iterable, Iterator
from threading import Event
from typing import BinaryIO

from persys.client.call import call, our_errors
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb

PART_BYTES = 256 * 1024


class ImageCalls(SchedulerCalls):
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
        with our_errors():
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


def _requests(
    start: pb.AddImageStart, content: BinaryIO | None, begun: Event, over: Event
) -> Iterator[pb.AddImageRequest]:
    """Iterated by a gRPC thread, which takes the next request when the previous one was sent."""
    yield pb.AddImageRequest(start=start)
    begun.wait()
    while content is not None and not over.is_set() and (data := content.read(PART_BYTES)):
        yield pb.AddImageRequest(data=data)
