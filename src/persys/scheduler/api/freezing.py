"""In degraded and recovery mode: every change is refused with the mode, every answer says how old it is.

The table names what changes something; a test holds that each method of the contract is in it or is known to
change nothing. A change is refused in the answer, with OK, as the contract has it for the oldest of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from persys.scheduler.modes import Modes
from persys.wire.beside import DATA_AGE_MS, MODE
from persys.wire.gen.control.v1 import control_pb2 as pb

REFUSALS: dict[str, Callable[[str], Message]] = {
    "ApplyWorkload": lambda why: pb.ApplyWorkloadResponse(success=False, error_message=why),
    "DeleteWorkload": lambda why: pb.DeleteWorkloadResponse(success=False, error_message=why),
    "RetryWorkload": lambda why: pb.RetryWorkloadResponse(accepted=False, reason=why),
    "RedeployWorkload": lambda why: pb.RedeployWorkloadResponse(accepted=False, reason=why),
    "SubmitAutomationSuggestion": lambda why: pb.SubmitAutomationSuggestionResponse(
        accepted=False, decision="rejected", reason=why
    ),
    **dict.fromkeys(
        (
            "CordonNode",
            "UncordonNode",
            "DrainNode",
            "ConfirmNodeDead",
            "RemoveNode",
            "TaintNode",
        ),
        lambda why: pb.NodeAnswer(accepted=False, reason=why),
    ),
    "CreateToken": lambda why: pb.CreateTokenResponse(accepted=False, reason=why),
    "RevokeToken": lambda why: pb.TokenAnswer(accepted=False, reason=why),
    **dict.fromkeys(
        ("PutSecret", "DeleteSecret"), lambda why: pb.SecretAnswer(accepted=False, reason=why)
    ),
    "DeleteVolume": lambda why: pb.DeleteVolumeResponse(success=False, error_message=why),
    **dict.fromkeys(
        ("AdoptOrphan", "DeleteOrphan"), lambda why: pb.OrphanAnswer(accepted=False, reason=why)
    ),
}


def heeding(
    name: str, call: Callable[..., Awaitable[Any]], modes: Modes
) -> Callable[..., Awaitable[Any]]:
    refuse = REFUSALS.get(name)

    async def heeded(request: Any, context: Any) -> Any:
        if not modes.is_frozen:
            return await call(request, context)
        _say_so(context, modes)
        if refuse is not None:
            return refuse(str(modes.refusal()))
        return await call(request, context)

    return heeded


def heeding_stream(
    call: Callable[..., AsyncIterator[Any]], modes: Modes
) -> Callable[..., AsyncIterator[Any]]:
    async def heeded(request: Any, context: Any) -> AsyncIterator[Any]:
        if modes.is_frozen:
            _say_so(context, modes)
        async for answer in call(request, context):
            yield answer

    return heeded


def _say_so(context: Any, modes: Modes) -> None:
    age_ms = round(modes.data_age().total_seconds() * 1000)
    context.set_trailing_metadata(((MODE, modes.state.mode.value), (DATA_AGE_MS, str(age_ms))))
