"""mTLS of third-party programs: one certificate for server and client, peers identified by their host."""

from pathlib import Path
from typing import Any

import grpc


def serve(server: grpc.aio.Server, address: str, files: dict[str, str]) -> None:
    """`files` are ca, cert and key; without them plain text is used."""
    if not files:
        server.add_insecure_port(address)
        return
    ca, cert, key = _read(files)
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    server.add_secure_port(address, credentials)


def dial(address: str, files: dict[str, str], *, name: str = "") -> grpc.aio.Channel:
    """`name`: the name in the server certificate, if it is not the host."""
    if not files:
        return grpc.aio.insecure_channel(address)
    ca, cert, key = _read(files)
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    options: list[tuple[str, Any]] = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.aio.secure_channel(address, credentials, options=options)


def _read(files: dict[str, str]) -> tuple[bytes, bytes, bytes]:
    ca, cert, key = (Path(files[name]).read_bytes() for name in ("ca", "cert", "key"))
    return ca, cert, key
