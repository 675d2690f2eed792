"""The typed SDK: a scheduler or an agent as a plain Python object.

Names are imported on first use, so that a program that talks to one of them pays only for that one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from persys.client.agent import AgentClient
    from persys.client.call import RequestRefusedError
    from persys.client.scheduler import SchedulerClient

__all__ = ["AgentClient", "RequestRefusedError", "SchedulerClient"]

_MODULES = {
    "AgentClient": "persys.client.agent",
    "RequestRefusedError": "persys.client.call",
    "SchedulerClient": "persys.client.scheduler",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
