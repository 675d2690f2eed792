"""Node pool files: one YAML or JSON document with `kind: nodepool`."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from persys.core.bounded_yaml import MappingNode, Node, value_of
from persys.core.duration import parse_duration
from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.strict import entries, unknown_key

KIND = "nodepool"
_SIZE_FIELDS: Mapping[str, type] = {
    "name": str,
    "cpu_millicores": int,
    "memory_mb": int,
    "disk_gb": int,
    "hour_price": float,
}


def read_pool(node: Node) -> control_pb2.NodePoolSpec:
    """Raises InvalidError that names the field. `status`, which `nodepool get -o yaml` prints, is ignored."""
    spec = control_pb2.NodePoolSpec()
    for key, part in entries(node, ""):
        if key.value == "kind" or (key.value == "status" and isinstance(part, MappingNode)):
            continue
        reader = _FIELDS.get(key.value)
        if reader is None:
            raise unknown_key(key, "", list(_FIELDS))
        value = value_of(part)
        if value is not None:
            reader(spec, value)
    return spec


def _text(field: str) -> Callable[[control_pb2.NodePoolSpec, Any], None]:
    def read(spec: control_pb2.NodePoolSpec, value: Any) -> None:
        setattr(spec, field, _checked(field, value, str))

    return read


def _number(field: str, kind: type = int) -> Callable[[control_pb2.NodePoolSpec, Any], None]:
    def read(spec: control_pb2.NodePoolSpec, value: Any) -> None:
        _set(spec, field, field, _checked(field, value, kind))

    return read


def _duration(field: str) -> Callable[[control_pb2.NodePoolSpec, Any], None]:
    def read(spec: control_pb2.NodePoolSpec, value: Any) -> None:
        try:
            seconds = round(parse_duration(str(value)).total_seconds())
        except ValueError as err:
            raise InvalidError(field, f"invalid duration {value!r}: {err}") from err
        _set(spec, f"{field}_seconds", field, seconds)

    return read


def _sizes(spec: control_pb2.NodePoolSpec, value: Any) -> None:
    for at, entry in enumerate(_checked("sizes", value, list)):
        field = f"sizes[{at}]"
        size = spec.sizes.add()
        for name, part in _checked(field, entry, dict).items():
            if name not in _SIZE_FIELDS:
                raise InvalidError(f"{field}.{name}", _unknown(str(name), _SIZE_FIELDS))
            where = f"{field}.{name}"
            _set(size, name, where, _checked(where, part, _SIZE_FIELDS[name]))


def _software(spec: control_pb2.NodePoolSpec, value: Any) -> None:
    for name, part in _checked("software", value, dict).items():
        if name not in ("url", "sha256"):
            raise InvalidError(f"software.{name}", _unknown(str(name), ("url", "sha256")))
        setattr(spec, f"software_{name}", _checked(f"software.{name}", part, str))


def _texts(field: str) -> Callable[[control_pb2.NodePoolSpec, Any], None]:
    """A mapping of texts. Numbers and booleans are accepted as their text."""

    def read(spec: control_pb2.NodePoolSpec, value: Any) -> None:
        for key, part in _checked(field, value, dict).items():
            if not isinstance(part, str | int | float | bool):
                raise InvalidError(f"{field}.{key}", "invalid value: expected a text")
            shown = str(part).lower() if isinstance(part, bool) else str(part)
            getattr(spec, field)[str(key)] = shown

    return read


def _taints(spec: control_pb2.NodePoolSpec, value: Any) -> None:
    spec.taints.extend(_checked("taints", one, str) for one in _checked("taints", value, list))


def _checked(field: str, value: Any, kind: type) -> Any:
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        expected = {str: "a text", int: "an integer", float: "a number", list: "a list"}
        raise InvalidError(
            field, f"invalid value {value!r}: expected {expected.get(kind, 'a mapping')}"
        )
    return value


def _set(message: Any, name: str, field: str, value: Any) -> None:
    try:
        setattr(message, name, value)
    except ValueError as err:
        raise InvalidError(field, f"invalid number {value!r}: it is out of range") from err


def _unknown(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"unknown field{f': expected {close[0]}' if close else ''}"


_FIELDS: Mapping[str, Callable[[control_pb2.NodePoolSpec, Any], None]] = {
    "pool_id": _text("pool_id"),
    "provider": _text("provider"),
    "region": _text("region"),
    "image": _text("image"),
    "sizes": _sizes,
    "min": _number("min"),
    "max": _number("max"),
    "spend_per_hour_max": _number("spend_per_hour_max", float),
    "idle_after": _duration("idle_after"),
    "provision_deadline": _duration("provision_deadline"),
    "labels": _texts("labels"),
    "taints": _taints,
    "tier": _number("tier"),
    "software": _software,
    "options": _texts("options"),
    "credentials": _text("credentials"),
}
