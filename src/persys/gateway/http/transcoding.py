"""Builds the RPC request message from the path, the query and the JSON body of an HTTP request.

Path fields win over the body. Every query parameter must be a field of the message: an ignored typo in a
filter would return everything.
"""

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from multidict import MultiMapping

from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import Descriptor, fill, read_json
from persys.wire.rest.routes import Route

SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
# For a stream of requests, path and query fill the start message.
_STARTS: Mapping[str, Descriptor] = {
    "AddImage": pb.AddImageStart.DESCRIPTOR,
    "Exec": pb.ExecStart.DESCRIPTOR,
    "PortForward": pb.ForwardStart.DESCRIPTOR,
    "CopyFiles": pb.CopyStart.DESCRIPTOR,
}
# Query parameters of the gateway itself, never message fields.
OURS = frozenset({"cluster_id"})
PAGING = frozenset({"limit", "cursor"})
_TRUE = frozenset({"", "true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})


def path_fields(path: str) -> tuple[str, ...]:
    return tuple(re.findall(r"{(\w+)}", path))


def request_descriptor(rpc: str) -> Descriptor:
    return _STARTS.get(rpc, SERVICE.methods_by_name[rpc].input_type)


class Transcoder:
    def __init__(
        self, route: Route, *, ignored: frozenset[str] = OURS, strict: bool = True
    ) -> None:
        """`ignored`: query parameters that are not fields. `strict` False ignores all unknown ones."""
        self._descriptor = request_descriptor(route.rpc)
        self._type = GetMessageClass(self._descriptor)
        self._body = route.body
        self._strict = strict
        self._ignored = OURS | (ignored - {field.name for field in self._descriptor.fields})
        self._path = path_fields(route.path)

    def request(self, path: Mapping[str, str], query: MultiMapping[str], body: bytes) -> Any:
        """Raises InvalidError."""
        message: Message = self._type()
        if query:
            fill(message, self._from_query(query))
        if self._body:
            fill(message, read_json(body))
        for name in self._path:
            setattr(message, name, path[name])
        return message

    def _from_query(self, query: MultiMapping[str]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for name in query:
            if name in self._ignored or name in plain:
                continue
            field = self._field(name)
            if field is None:
                continue
            texts = query.getall(name)
            if not field.is_repeated and len(texts) > 1:
                raise InvalidError(name, "expected at most once")
            values = [_value(field, text) for text in texts]
            plain[field.name] = values if field.is_repeated else values[0]
        return plain

    def _field(self, name: str) -> FieldDescriptor | None:
        field: FieldDescriptor | None = self._descriptor.fields_by_name.get(
            name
        ) or self._descriptor.fields_by_camelcase_name.get(name)
        if field is not None and (_is_flat(field) and not self._body):
            return field
        if self._strict:
            raise InvalidError(name, "unknown query parameter")
        return None


def _is_flat(field: FieldDescriptor) -> bool:
    return field.message_type is None or field.message_type.full_name == "google.protobuf.Timestamp"


def _value(field: FieldDescriptor, text: str) -> Any:
    if field.cpp_type != FieldDescriptor.CPPTYPE_BOOL:
        return text
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise InvalidError(field.name, f"{text!r}: expected true or false")
    return word in _TRUE
