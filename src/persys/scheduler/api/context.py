"""The AgentControl service, assembled from its parts.

A part is any object whose methods have the names of RPCs. Only RPCs of the METHODS table are served, each
wrapped by the chain; all others are UNIMPLEMENTED.
"""

from typing import Any

import grpc

from persys.errors import MissingFieldError
from persys.scheduler.api.chain import Chain
from persys.scheduler.api.methods import SERVICE as SERVICE
from persys.scheduler.api.methods import SERVICE_DESCRIPTOR as SERVICE_DESCRIPTOR
from persys.wire.methods import METHODS

Context = grpc.aio.ServicerContext[Any, Any]


class ControlApi:
    def __init__(self, *parts: object, chain: Chain) -> None:
        for name, method in METHODS.items():
            for part in parts:
                if (handler := getattr(part, name, None)) is not None:
                    setattr(self, name, chain.wrap(method, handler))


def need(value: str, field: str) -> None:
    if not value:
        raise MissingFieldError(field)
