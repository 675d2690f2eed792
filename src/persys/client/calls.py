"""What every group of calls to a scheduler has: the stub and the time to wait."""

from datetime import timedelta

from persys.client.call import DEFAULT_TIMEOUT, open_channel
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub


class SchedulerCalls:
    def __init__(self, target: str, *, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self.target = target
        self._timeout = timeout
        self._channel = open_channel(target)
        self._stub = AgentControlStub(self._channel)
