"""The JSON of messages equals that of protobuf's own library, in both directions."""

import math
from contextlib import suppress
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import fill, read_json, to_json, to_plain

TIMES = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
    st.integers(-62_135_596_800, 253_402_300_799),
    st.sampled_from([0, 1, 5_000, 7_000_000, 999_999_999]),
)
DEPTH_MAX = 3
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    # JSON has one NaN; a double has many.
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats().map(
        lambda one: math.nan if math.isnan(one) else one
    ),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 12),
}
MESSAGES = sorted(pb.DESCRIPTOR.message_types_by_name)


def values_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return contents_of(field.message_type, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=5)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return st.text(max_size=5)
    return SCALARS[field.cpp_type]


@st.composite
def contents_of(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> Message:
    message: Message = GetMessageClass(descriptor)()
    if descriptor.full_name == "google.protobuf.Timestamp":
        return GetMessageClass(descriptor)(**draw(TIMES))
    for field in descriptor.fields:
        if (depth >= DEPTH_MAX and field.message_type is not None) or not draw(st.booleans()):
            continue
        put(draw, message, field, depth)
    return message


def put(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        there = getattr(message, field.name)
        for key in draw(st.lists(values_of(entry.fields_by_name["key"], depth), max_size=2)):
            there[key] = draw(values_of(entry.fields_by_name["value"], depth))
    elif field.is_repeated:
        getattr(message, field.name).extend(
            draw(st.lists(values_of(field, depth), min_size=1, max_size=2))
        )
    elif entry is not None:
        getattr(message, field.name).CopyFrom(draw(values_of(field, depth)))
    else:
        setattr(message, field.name, draw(values_of(field, depth)))


def any_message() -> st.SearchStrategy[Message]:
    names = st.sampled_from(MESSAGES)
    return names.flatmap(lambda name: contents_of(pb.DESCRIPTOR.message_types_by_name[name]))


@given(any_message())
def test_the_json_of_a_message_equals_that_of_protobuf(message: Message) -> None:
    expected = json_format.MessageToDict(message, preserving_proto_field_name=True)

    assert msgspec.json.decode(to_json(message)) == msgspec.json.decode(
        msgspec.json.encode(expected)
    )


@given(any_message())
def test_json_is_read_back_in_snake_case_and_camel_case(message: Message) -> None:
    for plain in (to_plain(message), json_format.MessageToDict(message)):
        again = type(message)()
        fill(again, read_json(msgspec.json.encode(plain)))
        assert again.SerializeToString(deterministic=True) == message.SerializeToString(
            deterministic=True
        )


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["workload_id", "spec", "desiredState", "revision_id", "x"])


@given(st.dictionaries(NAMES, PLAIN | st.dictionaries(st.sampled_from(["type", "vm"]), PLAIN)))
def test_any_object_is_read_or_refused(plain: dict[str, Any]) -> None:
    with suppress(InvalidError):
        fill(pb.ApplyWorkloadRequest(), plain)


@given(st.binary(max_size=20))
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    with suppress(InvalidError):
        assert isinstance(read_json(body), dict)
