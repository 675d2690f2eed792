"""Connection attempts without a certificate, with openssl and gRPC reflection."""

import os
import select
import subprocess
from contextlib import suppress

import grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # the first HTTP/2 frame of each side
WAIT_SECONDS = 10


def openssl_connects(port: int, *arguments: str) -> bool:
    """Whether the server responds with HTTP/2, not only with TLS."""
    with subprocess.Popen(
        [
            *("openssl", "s_client", "-connect", f"127.0.0.1:{port}"),
            *("-quiet", "-alpn", "h2", "-cipher", "ALL:@SECLEVEL=0", *arguments),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it may have exited
                process.stdin.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
                process.stdin.flush()
            replied, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
            received = os.read(process.stdout.fileno(), len(SETTINGS)) if replied else b""
        finally:
            process.kill()
    return received[3:] == SETTINGS[3:]


def reflected_services(channel: grpc.Channel) -> list[str]:
    """The services that reflection lists, like grpcurl. Empty if there is no connection."""
    with channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        try:
            (response,) = stub.ServerReflectionInfo(iter([request]), timeout=WAIT_SECONDS)
        except grpc.RpcError as err:
            if err.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return []
    return [service.name for service in response.list_services_response.service]
