"""Client of a cluster, through a scheduler or a gateway. Responses are protobuf messages."""

from types import TracebackType
from typing import Self

from persys.client.admin import GatewayCalls, RecordCalls, SecretCalls, TokenCalls
from persys.client.cluster import EventCalls, OutlookCalls, RecoveryCalls
from persys.client.nodes import DriftCalls, NodeCalls
from persys.client.workloads import (
    AccessCalls,
    ImageCalls,
    SuggestionCalls,
    VolumeCalls,
    WorkloadCalls,
)


class SchedulerClient(
    NodeCalls,
    WorkloadCalls,
    OutlookCalls,
    EventCalls,
    DriftCalls,
    RecoveryCalls,
    RecordCalls,
    AccessCalls,
    VolumeCalls,
    ImageCalls,
    TokenCalls,
    SecretCalls,
    SuggestionCalls,
    GatewayCalls,
):
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
