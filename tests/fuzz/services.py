"""Calls of a fuzzer to a gRPC service, as bytes, so that invalid messages can be sent too.

A response is a result, or a refusal with a code of the contract. INTERNAL and UNKNOWN are defects of the
service, and so is a unary call without a response in time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any
from urllib.request import urlopen

import grpc

from fuzz.generator import a_change, a_message, some_bytes

CALL_SECONDS = 20.0
STREAM_SECONDS = 1.0
DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
# The error of the client library for a call that ended while it was still writing. The response is lost.
WRITTEN_TOO_LATE = "Internal error from Core"
REQUESTS_MAX = 6  # on one stream of requests
ANSWERS_MAX = 20  # that are read of one stream of answers


def requests_of(random: Random, method: Any, valid: Callable[[], Any]) -> list[bytes]:
    """The requests of one call. `valid` creates a valid request, or None."""
    if not method.client_streaming:
        return [_request(random, method, valid)]
    return [_request(random, method, valid) for _ in range(random.randint(0, REQUESTS_MAX))]


def _request(random: Random, method: Any, valid: Callable[[], Any]) -> bytes:
    if random.random() < 0.05:
        return some_bytes(random)
    request = valid()
    if request is None or random.random() < 0.3:
        request = a_message(random, method.input_type)
    elif random.random() < 0.9:
        a_change(random, request)
    encoded: bytes = request.SerializeToString()
    return encoded


async def call(
    channel: grpc.aio.Channel, method: Any, requests: Sequence[bytes], *, metadata: Any = ()
) -> None:
    """Raises AssertionError for a response that is a defect."""
    code, problem = grpc.StatusCode.OK, ""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await _call(channel, method, requests, metadata)
    except grpc.aio.AioRpcError as err:
        code, problem = (
            err.code(),
            f"{method.name}: {err.code()} {err.details()}\n{requests}"[:4000],
        )
    if method.server_streaming and code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return  # the stream would continue
    if method.client_streaming and WRITTEN_TOO_LATE in problem:
        return
    assert code not in DEFECTS, problem


async def _call(
    channel: grpc.aio.Channel, method: Any, requests: Sequence[bytes], metadata: Any
) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    created: Any
    responses: Any
    match method.client_streaming, method.server_streaming:
        case False, False:
            created = channel.unary_unary(path)
            await created(requests[0], timeout=CALL_SECONDS, metadata=metadata)
            return
        case True, False:
            created = channel.stream_unary(path)
            await created(_each(requests), timeout=CALL_SECONDS, metadata=metadata)
            return
        case False, True:
            created = channel.unary_stream(path)
            responses = created(requests[0], timeout=STREAM_SECONDS, metadata=metadata)
        case _:
            created = channel.stream_stream(path)
            responses = created(_each(requests), timeout=STREAM_SECONDS, metadata=metadata)
    count = 0
    async for _ in responses:
        count += 1
        if count == ANSWERS_MAX:
            responses.cancel()
            return


async def _each(requests: Sequence[bytes]) -> AsyncIterator[bytes]:
    for request in requests:
        yield request


async def contained_errors(metrics_port: int) -> list[str]:
    """Unexpected exceptions that the process contained. Each is a defect."""
    address = f"http://127.0.0.1:{metrics_port}/metrics"
    response: bytes = await asyncio.to_thread(lambda: urlopen(address, timeout=20).read())
    counted = "persys_internal_errors_total{"
    return [line for line in response.decode().splitlines() if line.startswith(counted)]
