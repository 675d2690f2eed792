"""Hypothesis strategies for any struct, including limits and unusual text."""

import enum
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Struct, structs

INT64_MAX = 2**63 - 1
integers = st.sampled_from([0, 1, -1, 2**31, INT64_MAX, -INT64_MAX - 1, 2**64 - 1, 2**64, 10**30])
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "\x00", "\u2028", "a" * 5_000, "\U0001f600", "\\\"{}'", "\x1b[2J"]),
)
lone_surrogates = st.sampled_from(["\ud800", "a\udfffb"])
moments = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
)

_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: integers,
    str: st.one_of(texts, lone_surrogates),
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: moments,
    timedelta: st.timedeltas(timedelta(0), timedelta(days=36_500)),
    NoneType: st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field type of a stored struct."""
    if isinstance(kind, NewType):
        return values_of(kind.__supertype__)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and issubclass(kind, Struct):
        fields = {field.name: values_of(field.type) for field in structs.fields(kind)}
        return st.builds(kind, **fields)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of([values_of(one) for one in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if origin is frozenset:
        return st.frozensets(values_of(arguments[0]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(one) for one in arguments))
    raise AssertionError(f"no strategy for {kind}: add one")
