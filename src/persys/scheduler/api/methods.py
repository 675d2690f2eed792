"""What all handlers share, and how each RPC refuses: in its response, with OK, if that has fields for it.

Existing clients read `accepted` or `success` and a text in the response of a change. The fields are taken
from the message descriptor, so a new RPC gets its refusal from the shape of its response.
"""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from persys.errors import MissingFieldError, PersysError, RefusedError
from persys.model.status import FailureReason
from persys.wire.control import messages as control_messages
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.methods import METHODS

SERVICE = "persys.control.v1.AgentControl"
SERVICE_DESCRIPTOR = control_pb2.DESCRIPTOR.services_by_name["AgentControl"]

Context = grpc.aio.ServicerContext[Any, Any]
Refuse = Callable[[PersysError], Message]

_FLAGS = ("accepted", "success")
_TEXTS = ("reason", "error_message")


def need(value: str, field: str) -> None:
    if not value:
        raise MissingFieldError(field)


def refusal_of(answer: Descriptor) -> Refuse | None:
    """Builds the response that refuses; None for a message without fields for it."""
    fields = answer.fields_by_name
    text = next((name for name in _TEXTS if name in fields), None)
    if text is None or not any(flag in fields for flag in _FLAGS):
        return None
    make = GetMessageClass(answer)

    def refuse(err: PersysError) -> Message:
        values: dict[str, Any] = {text: str(err)}
        if "decision" in fields:
            values["decision"] = "rejected"
        if "failure_reason" in fields and isinstance(err, RefusedError):
            values["failure_reason"] = control_messages.failure_enum(FailureReason.INVALID_SPEC)
        return make(**values)

    return refuse


REFUSALS: dict[str, Refuse] = {
    name: refuse
    for name, method in METHODS.items()
    if method.mutating
    and (refuse := refusal_of(SERVICE_DESCRIPTOR.methods_by_name[name].output_type)) is not None
}


# Their response is a decision that is stored. If none was made the call fails, so that the client retries.
DECISIONS = frozenset(
    name
    for name in REFUSALS
    if "decision" in SERVICE_DESCRIPTOR.methods_by_name[name].output_type.fields_by_name
)


def is_refusal(answer: Message) -> bool:
    """Whether this response says that nothing was changed."""
    fields = answer.DESCRIPTOR.fields_by_name
    return any(flag in fields and not getattr(answer, flag) for flag in _FLAGS)
