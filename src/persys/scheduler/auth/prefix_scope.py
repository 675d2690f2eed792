"""Limits a call with a prefix token to the workloads and secrets whose names begin with the prefix.

How an RPC is limited is its scope in METHODS: fields of the request that must begin with the prefix, and
fields of responses that are filtered or cleared. An RPC without a scope is refused. `check_request` runs with
the authorization on every scheduler, the filters of responses in the interceptor chain of the scheduler that
serves the call.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from typing import Any, Self

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from persys.core.federation.cluster_ids import cluster_of
from persys.errors import DeniedError
from persys.infra.rpc.authorizer import CALLER
from persys.model.identity import Caller
from persys.wire.metadata_keys import HOME
from persys.wire.methods import METHODS, Method, Scope

HOME_LENGTH_MAX = 253
REASON = "prefix"  # of the DeniedError

Path = Sequence[str]


def current_prefix() -> str:
    """The prefix that the caller of this request is limited to; empty: all names."""
    caller = CALLER.get()
    return caller.prefix if caller is not None else ""


def home_of(context: Any) -> str:
    """The cluster that makes this call, by the prefix of its token; empty: it is not of another cluster.

    Without authentication (-insecure) there are no tokens: the cluster names itself.
    """
    caller = CALLER.get()
    if caller is not None:
        return cluster_of(caller.prefix)
    metadata = getattr(context, "invocation_metadata", None)
    received = metadata() if metadata is not None else None
    return next((str(value) for key, value in received or () if key == HOME), "")[:HOME_LENGTH_MAX]


def check_request(caller: Caller, name: str, request: Any) -> Any:
    """The request, or its messages checked as they arrive. Raises DeniedError."""
    if not caller.prefix:
        return request
    method = METHODS.get(name)
    if method is None or method.scope is None or not method.scope.allowed:
        text = f"{caller.identity} may not call {name}: its token is limited to {caller.prefix!r}"
        raise DeniedError(text, reason=REASON)
    if not isinstance(request, Message):
        return _CheckedMessages(caller, method.scope, request)
    _check(caller, method.scope, request)
    return request


def limit_response(method: Method, response: Any, prefix: str) -> Any:
    """The response without what belongs to others. It is changed in place."""
    if not prefix:
        return response
    scope = _scope_of(method)
    for path in scope.hides:
        _clear(response, split(path))
    for path in scope.filters:
        _filter(response, split(path), prefix)
    return response


def limited_context(method: Method, context: Any, prefix: str) -> Any:
    """The context of a stream. Messages that belong to others are not written to it."""
    return _LimitedContext(method, context, prefix) if prefix else context


@cache
def split(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def values_at(message: Any, path: Path) -> Iterator[str]:
    """The values of a field. Fields of messages that are not set have none."""
    name, *rest = path
    value = getattr(message, name)
    if message.DESCRIPTOR.fields_by_name[name].is_repeated:
        for item in value:
            if rest:
                yield from values_at(item, rest)
            else:
                yield item
    elif not rest:
        yield value
    elif message.HasField(name):
        yield from values_at(value, rest)


def _check(caller: Caller, scope: Scope, message: Any) -> None:
    for path in scope.ids:
        for value in values_at(message, split(path)):
            if not value.startswith(caller.prefix):
                raise DeniedError(
                    f"{caller.identity} may not use {path} {value[:80]!r}: its token is limited to names "
                    f"that begin with {caller.prefix!r}",
                    reason=REASON,
                )


class _CheckedMessages:
    """The messages of a stream. Raises DeniedError at a message with another name."""

    def __init__(self, caller: Caller, scope: Scope, messages: AsyncIterator[Any]) -> None:
        self._caller = caller
        self._scope = scope
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        _check(self._caller, self._scope, message)
        return message


class _LimitedContext:
    def __init__(self, method: Method, context: Any, prefix: str) -> None:
        self._context = context
        self._method = method
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        limited = limit_response(self._method, message, self._prefix)
        if all(self._is_own(limited, split(path)) for path in _scope_of(self._method).filters):
            await self._context.write(limited)

    def _is_own(self, message: Any, path: Path) -> bool:
        if message.DESCRIPTOR.fields_by_name[path[0]].is_repeated:
            return True  # its items are filtered
        if {field.name for field, _ in message.ListFields()} <= {"sequence"}:
            return True  # a bookmark
        return all(value.startswith(self._prefix) for value in values_at(message, path))


def _scope_of(method: Method) -> Scope:
    if method.scope is None or not method.scope.allowed:
        raise DeniedError(f"{method.name} is refused to tokens with a prefix", reason=REASON)
    return method.scope


def _clear(message: Any, path: Path) -> None:
    name, *rest = path
    if not rest:
        message.ClearField(name)
    elif message.DESCRIPTOR.fields_by_name[name].is_repeated:
        for item in getattr(message, name):
            _clear(item, rest)
    elif message.HasField(name):
        _clear(getattr(message, name), rest)


def _filter(message: Any, path: Path, prefix: str) -> None:
    """Remove the items of a list whose name does not begin with the prefix."""
    name, *rest = path
    field = message.DESCRIPTOR.fields_by_name[name]
    if not field.is_repeated:
        if rest and message.HasField(name):
            _filter(getattr(message, name), rest, prefix)
        return
    items = getattr(message, name)
    if rest and _has_list(field.message_type, rest):
        for item in items:
            _filter(item, rest, prefix)
        return
    kept = [
        item
        for item in items
        if all(
            value.startswith(prefix) for value in (values_at(item, rest) if rest else (str(item),))
        )
    ]
    if len(kept) < len(items):
        message.ClearField(name)
        getattr(message, name).extend(kept)


def _has_list(kind: Descriptor | None, path: Path) -> bool:
    assert kind is not None, "a path leads through messages"
    name, *rest = path
    field = kind.fields_by_name[name]
    return field.is_repeated or (bool(rest) and _has_list(field.message_type, rest))
