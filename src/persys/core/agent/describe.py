"""Describes an artefact as status metadata, with the keys of the API contract.

The description is bounded, so one workload cannot make a heartbeat too large to send.
"""

from datetime import datetime

from persys.core.agent.deviations import DRIFT, summary
from persys.core.agent.health import HEALTH
from persys.core.agent.next_step import Artefact, Condition
from persys.model.status import Failure, FailureReason

LOG_TAIL_BYTES_MAX = 4096
MESSAGE_LENGTH_MAX = 4096
WORD_LENGTH_MAX = 8192
WORDS_MAX = 64
INTERNAL_ERROR = "InternalError"
ID = "container.id"
STARTED_AT = "container.started_at"


def describe(artefact: Artefact | None, *, log_tail: str = "") -> dict[str, str]:
    if artefact is None:
        return {}
    words = {
        ID: artefact.id,
        "container.name": artefact.name,
        "container.state": artefact.condition.value,
        "container.image": artefact.image,
        "container.exit_code": str(artefact.exit_code) if _has_ended(artefact) else "",
        STARTED_AT: _shown(artefact.started_at),
        "container.finished_at": _shown(artefact.finished_at),
        "container.restart_count": str(artefact.restart_count),
        "container.ports": ",".join(artefact.ports),
        "container.stderr": tail(log_tail),
        HEALTH: artefact.health.value if artefact.health is not None else "",
        DRIFT: summary(artefact.deviations),
    }
    if artefact.boots:
        # The end of a VM and the tail of its console use the keys of a container.
        ending = ("container.exit_code", STARTED_AT, "container.finished_at", "container.stderr")
        words = {name: words[name] for name in ending} | artefact.facts
    if artefact.parts:
        # A stack has several containers, but its end, log and ports use the keys of a container.
        for name in (ID, "container.name", "container.image", STARTED_AT):
            del words[name]
        words |= {
            "compose.project": artefact.name,
            "compose.services": ",".join(artefact.parts),
            "compose.commit": artefact.commit,
        }
    there = [(name, word) for name, word in words.items() if word]
    return {name: shortened(word, WORD_LENGTH_MAX) for name, word in there[:WORDS_MAX]}


def internal_failure(text: str) -> Failure:
    """An error of the agent itself, so a retry may succeed."""
    return Failure(FailureReason.RUNTIME_ERROR, f"internal error: {text}", code=INTERNAL_ERROR)


def shortened(text: str, length_max: int = MESSAGE_LENGTH_MAX) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def tail(text: str) -> str:
    """The end of a text within the limit of a status, cut between characters."""
    data = text.encode("utf-8", "replace")
    return data[-LOG_TAIL_BYTES_MAX:].decode("utf-8", "ignore")


def _has_ended(artefact: Artefact) -> bool:
    return artefact.finished_at is not None and artefact.condition is not Condition.RUNNING


def _shown(at: datetime | None) -> str:
    return at.isoformat() if at is not None else ""
