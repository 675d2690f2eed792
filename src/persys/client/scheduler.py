"""Client of a cluster, through a scheduler or a gateway. Responses are protobuf messages."""

from types import TracebackType
from typing import Self

from persys.client.admin import AdminCalls
from persys.client.cluster import ClusterCalls
from persys.client.nodes import NodeCalls
from persys.client.workloads import WorkloadCalls


class SchedulerClient(WorkloadCalls, NodeCalls, ClusterCalls, AdminCalls):
    """Safe for use by several threads. After UnavailableError, a change may or may not have been made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()
