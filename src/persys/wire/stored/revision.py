"""The revision of a spec: same content, same revision, in every process and every version.

Fields with their default value are not hashed. A later version with more fields therefore computes the same
revision for an old spec; another revision would recreate running workloads.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from persys.model.ids import Revision
from persys.model.placement import Resources
from persys.model.spec import ComposeSpec, Spec, StackNeeds, type_of

DIGITS = 16

_encoder = msgspec.json.Encoder(order="sorted")


def revision_of(
    spec: Spec,
    resources: Resources,
    metadata: Mapping[str, str],
    *,
    stop_after_seconds: int = 0,
    networks: tuple[str, ...] = (),
) -> Revision:
    """Placement rules are not included: a change of them must not recreate the workload."""
    if isinstance(spec, ComposeSpec):
        spec = replace(
            spec, needs=StackNeeds()
        )  # a later version may derive more needs from the same text
    content: list[object] = [
        type_of(spec),
        _non_default(spec),
        _non_default(resources),
        dict(metadata),
    ]
    if stop_after_seconds:
        content.append(stop_after_seconds)
    if networks:
        content.append({"networks": networks})
    return Revision(sha256(_encoder.encode(content)).hexdigest()[:DIGITS])


def _non_default(value: Struct) -> dict[str, object]:
    content = {}
    for name, default in _defaults(type(value)):
        found = getattr(value, name)
        if found != default:
            content[name] = _plain(found)
    return content


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return _non_default(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (field.name, {} if field.default_factory is not NODEFAULT else field.default)
        for field in fields(kind)
    )
