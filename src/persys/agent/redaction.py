"""Shortens texts about a workload and redacts its secret values, before they are stored or sent."""

from collections.abc import Mapping

from msgspec.structs import replace

from persys.core.agent.describe import shortened
from persys.core.agent.next_step import Settled
from persys.core.secrets import redacted, values_of
from persys.model.status import Failure
from persys.model.workload import Order


def text_without(order: Order, text: str) -> str:
    return shortened(_redacted(order, text))


def failure_without(order: Order, failure: Failure | None) -> Failure | None:
    if failure is None:
        return None
    return replace(failure, message=text_without(order, failure.message))


def settled_without(order: Order, settled: Settled) -> Settled:
    return replace(
        settled,
        message=text_without(order, settled.message),
        failure=failure_without(order, settled.failure),
    )


def words_without(order: Order, words: Mapping[str, str]) -> dict[str, str]:
    """Redact metadata: a log tail may contain any secret of the workload."""
    return {name: _redacted(order, text) for name, text in words.items()}


def _redacted(order: Order, text: str) -> str:
    values = values_of(order)
    return redacted(text, values) if values else text
