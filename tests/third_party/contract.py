"""The contract as third-party programs know it: the generated messages without our additions.

Fields and enum values from 100 up, and calls that are not in the contract, are removed from the descriptors.
So an addition arrives as an unknown field, and a program that sets or reads one fails.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor import FileDescriptor

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

FIRST_ADDED_NUMBER = 100
AGENT_CALLS = (
    *("ApplyWorkload", "DeleteWorkload", "GetWorkloadStatus"),
    *("ListWorkloads", "HealthCheck", "ListActions"),
)
CONTROL_CALLS = (
    *("RegisterNode", "Heartbeat", "ApplyWorkload", "DeleteWorkload", "RetryWorkload"),
    *("SubmitAutomationSuggestion", "ListNodes", "GetNode", "ListWorkloads", "GetWorkload"),
    "GetClusterSummary",
)


class Api:
    """One service: its messages and enum values by name, clients and servers."""

    def __init__(self, file: FileDescriptor, service: str, calls: Iterable[str]) -> None:
        pool = descriptor_pool.DescriptorPool()
        for known in (timestamp_pb2.DESCRIPTOR, file):
            proto = descriptor_pb2.FileDescriptorProto()
            known.CopyToProto(proto)
            if known is file:
                _strip(proto, calls)
            pool.Add(proto)
        found = pool.FindFileByName(file.name)
        self._service = found.services_by_name[service]
        self._names: dict[str, Any] = {
            name: message_factory.GetMessageClass(message)
            for name, message in found.message_types_by_name.items()
        }
        for enum in found.enum_types_by_name.values():
            self._names |= enum.values_by_name
        self.calls = tuple(method.name for method in self._service.methods)

    def __getattr__(self, name: str) -> Any:
        """A message class, or the number of an enum value."""
        try:
            named = self._names[name]
        except KeyError:
            raise AttributeError(name) from None
        return named if isinstance(named, type) else named.number

    def stub(self, channel: grpc.aio.Channel | grpc.Channel) -> Any:
        return SimpleNamespace(
            **{
                method.name: channel.unary_unary(
                    f"/{self._service.full_name}/{method.name}",
                    request_serializer=_class(method.input_type).SerializeToString,
                    response_deserializer=_class(method.output_type).FromString,
                )
                for method in self._service.methods
            }
        )

    def serve(self, server: grpc.aio.Server, servicer: object) -> None:
        """Calls that the servicer does not have are answered with UNIMPLEMENTED."""
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                _own(servicer, method.name),
                request_deserializer=_class(method.input_type).FromString,
                response_serializer=_class(method.output_type).SerializeToString,
            )
            for method in self._service.methods
            if hasattr(servicer, method.name)
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(self._service.full_name, handlers),)
        )


def _own(servicer: object, name: str) -> Callable[..., Any]:
    handler: Callable[..., Any] = getattr(servicer, name)
    return handler


def _class(message: Any) -> Any:
    return message_factory.GetMessageClass(message)


def _strip(proto: descriptor_pb2.FileDescriptorProto, calls: Iterable[str]) -> None:
    known = frozenset(calls)
    for message in proto.message_type:
        _strip_message(message)
    for enum in proto.enum_type:
        kept = [value for value in enum.value if value.number < FIRST_ADDED_NUMBER]
        del enum.value[:]
        enum.value.extend(kept)
    for service in proto.service:
        methods = [method for method in service.method if method.name in known]
        del service.method[:]
        service.method.extend(methods)


def _strip_message(message: descriptor_pb2.DescriptorProto) -> None:
    kept = [field for field in message.field if field.number < FIRST_ADDED_NUMBER]
    used = sorted({field.oneof_index for field in kept if field.HasField("oneof_index")})
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = used.index(field.oneof_index)
    oneofs = [message.oneof_decl[index] for index in used]
    del message.oneof_decl[:]
    message.oneof_decl.extend(oneofs)
    del message.field[:]
    message.field.extend(kept)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            _strip_message(nested)


agent = Api(agent_pb2.DESCRIPTOR, "AgentService", AGENT_CALLS)
control = Api(control_pb2.DESCRIPTOR, "AgentControl", CONTROL_CALLS)
