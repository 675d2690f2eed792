"""Fails calls with INTERNAL when the response of a gRPC peer cannot be parsed.

gRPC itself logs a traceback and returns None for such a response. With `parsed(channel)`, a generated stub
never returns None: awaiting or iterating the call raises AioRpcError.
"""

from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError

CANNOT_BE_PARSED = "the response cannot be parsed"
_UNPARSED: Final = object()


def parsed(channel: grpc.aio.Channel) -> Any:
    """The channel with every response checked, for a generated stub."""
    return _ParsedChannel(channel)


def rpc_error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=text)


class _ParsedChannel:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            setattr(self, kind, _parsed_kind(getattr(channel, kind)))


def _parsed_kind(multi_callable: Callable[..., Any]) -> Callable[..., Any]:
    def make(
        method: str, *, response_deserializer: Callable[[bytes], Any], **options: Any
    ) -> Callable[..., "_Call"]:
        def parse(data: bytes) -> Any:
            try:
                return response_deserializer(data)
            except DecodeError:
                return _UNPARSED

        # A stub has many methods, and most channels use few of them: each is made at its first call.
        make_once = partial(multi_callable, method, response_deserializer=parse, **options)
        made: Any = None

        def call(*request: Any, **options: Any) -> _Call:
            nonlocal made
            if made is None:
                made = make_once()
            return _Call(made(*request, **options))

        return call

    return make


class _Call:
    """A gRPC call with every response checked."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._responses: AsyncIterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        response = yield from self._call.__await__()
        return self._checked(response)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._responses is None:
            self._responses = aiter(self._call)
        return self._checked(await anext(self._responses))

    async def read(self) -> Any:
        return self._checked(await self._call.read())

    def _checked(self, response: Any) -> Any:
        if response is _UNPARSED:
            self._call.cancel()
            raise rpc_error(grpc.StatusCode.INTERNAL, CANNOT_BE_PARSED)
        return response
