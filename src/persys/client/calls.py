"""What every group of calls to a scheduler has: the stub and the time to wait."""

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from persys.client.call import DEFAULT_TIMEOUT, Trust, open_channel
from persys.model.role import Role
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

if TYPE_CHECKING:
    from persys.client.mode import ToldMode


class SchedulerCalls:
    def __init__(
        self,
        target: str,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        told_mode: "ToldMode | None" = None,
        trust: Trust | None = None,
    ) -> None:
        """Without `trust` in plain text. Raises SettingsError for files that cannot be read.

        `told_mode` hears of it when an answer comes from a scheduler that is not in normal mode.
        """
        self.target = target
        self._timeout = timeout
        self._channel = open_channel(target, Role.SCHEDULER, trust)
        if told_mode is not None:
            from persys.client.mode import ModeListener

            self._channel = grpc.intercept_channel(self._channel, ModeListener(told_mode))
        self._stub = AgentControlStub(self._channel)
