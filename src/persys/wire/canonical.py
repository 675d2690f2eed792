"""The revision of a spec: same content, same revision, in every process and every version.

Only what was said is hashed. A field that holds its default is left out, so that a later version
with more fields gives an old spec its old revision: a new one would recreate what runs.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from persys.model.ids import Revision
from persys.model.resources import Resources
from persys.model.spec import ComposeSpec, Spec, StackNeeds, type_of

DIGITS = 16

_encoder = msgspec.json.Encoder(order="sorted")


def revision_of(
    spec: Spec,
    resources: Resources,
    metadata: Mapping[str, str],
    *,
    stop_after_seconds: int = 0,
) -> Revision:
    """Placement rules are no part of it: where a workload may run is nothing to recreate it for."""
    if isinstance(spec, ComposeSpec):
        spec = replace(
            spec, needs=StackNeeds()
        )  # a later version may read more out of the same text
    said: list[object] = [type_of(spec), _said(spec), _said(resources), dict(metadata)]
    if stop_after_seconds:
        said.append(stop_after_seconds)
    return Revision(sha256(_encoder.encode(said)).hexdigest()[:DIGITS])


def _said(value: Struct) -> dict[str, object]:
    said = {}
    for name, default in _defaults(type(value)):
        found = getattr(value, name)
        if found != default:
            said[name] = _plain(found)
    return said


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return _said(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (field.name, {} if field.default_factory is not NODEFAULT else field.default)
        for field in fields(kind)
    )
