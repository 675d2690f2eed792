"""Client of a cluster, through a scheduler or a gateway. Responses are protobuf messages."""

from types import TracebackType
from typing import Self

from persys.client.access import AccessCalls
from persys.client.drifts import DriftCalls
from persys.client.events import EventCalls
from persys.client.gateway_calls import GatewayCalls
from persys.client.images import ImageCalls
from persys.client.nodes import NodeCalls
from persys.client.outlook import OutlookCalls
from persys.client.records import RecordCalls
from persys.client.recovery import RecoveryCalls
from persys.client.secrets import SecretCalls
from persys.client.suggestions import SuggestionCalls
from persys.client.tokens import TokenCalls
from persys.client.volumes import VolumeCalls
from persys.client.workloads import WorkloadCalls


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
