"""Placement rules and node taints of the control contract, decoded into the model and encoded from it."""

from collections.abc import Sequence
from typing import TypedDict

from persys.core.placement.constraints import parse, written
from persys.core.placement.filters import TOLERATES_ALL
from persys.errors import InvalidError
from persys.model.placement import PRIORITY_DEFAULT, PRIORITY_MAX, Offload, Rules, Strategy
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks

CONSTRAINTS_MAX = 32
TOLERATIONS_MAX = 32
TAINTS_MAX = 32
SPREAD_OVER_MAX = 4
WORD_LENGTH_MAX = 253

_APART = {"": False, "preferred": False, "required": True}
_OFFLOAD = {"": Offload.NEVER, **{word.value: word for word in Offload}}
_RETURN = {"": False, "when-free": True}
_STRATEGIES: dict[str, Strategy] = {strategy.value: strategy for strategy in Strategy}


def rules(message: control_pb2.PlacementRules, path: str = "spec.placement") -> Rules:
    """Decode the rules. Raises InvalidError with the first invalid field."""
    group = _word(message.group, f"{path}.group") if message.group else ""
    apart = checks.word(
        message.anti_affinity, _APART, f"{path}.anti_affinity", "preferred or required"
    )
    for field, value in (
        ("anti_affinity", message.anti_affinity),
        ("spread_over", message.spread_over),
    ):
        if value and not group:
            raise InvalidError(f"{path}.{field}", "applies to a group; set group too")
    return Rules(
        constraints=tuple(
            parse(text, f"{path}.constraints[{index}]")
            for index, text in enumerate(
                _few(message.constraints, CONSTRAINTS_MAX, f"{path}.constraints")
            )
        ),
        tolerations=tuple(
            _taint(text, f"{path}.tolerations[{index}]")
            for index, text in enumerate(
                _few(message.tolerations, TOLERATIONS_MAX, f"{path}.tolerations")
            )
        ),
        group=group,
        apart=apart,
        spread_over=tuple(
            _word(text, f"{path}.spread_over[{index}]")
            for index, text in enumerate(
                _few(message.spread_over, SPREAD_OVER_MAX, f"{path}.spread_over")
            )
        ),
        strategy=checks.word(message.strategy, _STRATEGIES, f"{path}.strategy", "spread or binpack")
        if message.strategy
        else None,
        priority=checks.number(message.priority, f"{path}.priority", most=PRIORITY_MAX)
        if message.HasField("priority")
        else PRIORITY_DEFAULT,
        **_offload_rules(message, path),
    )


class _OffloadRules(TypedDict):
    offload: Offload
    offload_data: bool
    return_when_free: bool


def _offload_rules(message: control_pb2.PlacementRules, path: str) -> _OffloadRules:
    offload = checks.word(
        message.offload, _OFFLOAD, f"{path}.offload", "never, when-full or prefer"
    )
    returns = checks.word(getattr(message, "return"), _RETURN, f"{path}.return", "when-free")
    for field, value in (("offload_data", message.offload_data), ("return", returns)):
        if value and offload is Offload.NEVER:
            raise InvalidError(f"{path}.{field}", "applies to offloading; set offload too")
    if returns and offload is Offload.PREFER:
        raise InvalidError(f"{path}.return", "conflicts with offload: prefer; set only one of them")
    return {
        "offload": offload,
        "offload_data": message.offload_data,
        "return_when_free": returns,
    }


def rules_message(stated: Rules) -> control_pb2.PlacementRules:
    """The message that `rules` decodes to equal rules."""
    return control_pb2.PlacementRules(
        constraints=[written(constraint) for constraint in stated.constraints],
        tolerations=stated.tolerations,
        group=stated.group,
        anti_affinity="required" if stated.apart else "",
        spread_over=stated.spread_over,
        strategy=stated.strategy or "",
        priority=stated.priority if stated.priority != PRIORITY_DEFAULT else None,
        offload="" if stated.offload is Offload.NEVER else stated.offload,
        offload_data=stated.offload_data,
        **({"return": "when-free"} if stated.return_when_free else {}),
    )


def node_taints(texts: Sequence[str]) -> frozenset[str]:
    """The taints of a node, at most one per key."""
    found = {}
    for index, text in enumerate(_few(texts, TAINTS_MAX, "taints")):
        path = f"taints[{index}]"
        taint = _taint(text, path)
        key = taint.partition("=")[0]
        if key == TOLERATES_ALL:
            raise InvalidError(path, "'*' is a toleration of all taints; expected a taint key")
        if key in found:
            raise InvalidError(path, f"{key!r} is used twice")
        found[key] = taint
    return frozenset(found.values())


def _taint(text: str, path: str) -> str:
    """`key` or `key=value`; surrounding spaces are ignored."""
    key, sign, value = text.partition("=")
    plain = _word(key.strip(), path)
    return f"{plain}={_word(value.strip(), path)}" if sign else plain


def _few(values: Sequence[str], most: int, path: str) -> Sequence[str]:
    if len(values) > most:
        raise InvalidError(path, f"has {len(values)} entries; expected at most {most}")
    return values


def _word(text: str, path: str) -> str:
    if not text or len(text) > WORD_LENGTH_MAX or not text.isprintable() or text.split() != [text]:
        raise InvalidError(
            path,
            f"invalid name {checks.quoted(text)}: expected 1 to {WORD_LENGTH_MAX} characters "
            "without spaces",
        )
    return text
