"""The fields that an apply changes.

Fields are compared in the form in which users write them, as nested mappings of texts. A field with its
default value is not in the mapping, so an added field has no text before and a removed one has none after.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    before: str  # "": was not set
    after: str  # "": is no longer set


def changed_fields(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[FieldChange, ...]:
    """Every leaf that differs, ordered by path."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return tuple(
        FieldChange(path, old.get(path, ""), new.get(path, ""))
        for path in sorted(old.keys() | new.keys())
        if old.get(path, "") != new.get(path, "")
    )


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                # A dot in a key would make two paths ambiguous.
                step = f"[{key}]" if "." in key else f".{key}"
                yield from _leaves(inner, f"{path}{step}" if path else str(key))
        case [Mapping(), *_]:
            for index, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{index}]")
        case list():
            if value:
                yield path, json.dumps(value, ensure_ascii=False)
        case bool():
            yield path, "true" if value else "false"
        case _:
            yield path, str(value)
