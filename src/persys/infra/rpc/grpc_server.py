"""The options of all gRPC servers and channels.

With certificates, both sides authenticate; with -insecure, neither does. Our certificates have fixed names in
addition to the host name, so a client can verify the role and name of a server at any address.
"""

import resource

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from persys.core.dns_names import PORT_MAX
from persys.errors import SettingsError
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX, MESSAGE_BYTES_MAX
from persys.infra.tls.certificates import Certificates

# A client that connects and sends nothing is disconnected after this time.
HANDSHAKE_MS = 10_000
# Per connection. A gateway carries the streams of all its clients on one.
STREAMS_MAX = 4096
METADATA_BYTES_MAX = 64 * 1024
# A connection without a call is closed after this time; clients connect again when they need it.
IDLE_MS = 10 * 60_000
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 60_000, 20_000
# Clients of this project ping every 20 s. One that pings more often than this is disconnected.
PING_INTERVAL_MIN_MS = 10_000
# The other descriptors are for the store, agents, files and the metrics port.
_CONNECTIONS_SHARE = 0.75
_CONNECTIONS_MIN = 256


def new_server(
    *interceptors: grpc.aio.ServerInterceptor, connections_max: int | None = None
) -> grpc.aio.Server:
    """A server whose clients are limited in connections, streams, metadata, pings and idle time.

    `connections_max` None: a share of the descriptors that this process may open. There is no limit on the
    age of a connection: revoked certificates are checked at each call, and control streams last for months.
    """
    # Without so_reuseport a second process on the port fails at once instead of sharing its calls.
    options = (
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", LIST_BYTES_MAX),
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_allowed_incoming_connections", connections_max or _connections_max()),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MIN_MS),
    )
    return grpc.aio.server(interceptors=interceptors, options=options)


def _connections_max() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_CONNECTIONS_MIN, int(min(descriptors, 1 << 20) * _CONNECTIONS_SHARE))


async def start_server(
    server: grpc.aio.Server,
    service: str,
    *,
    host: str,
    port: int,
    certificates: Certificates | None = None,
) -> int:
    """Add health and reflection, bind and start. Returns the port that is bound (useful for port 0)."""
    if not 0 <= port <= PORT_MAX:  # gRPC would use the port modulo 65536
        raise SettingsError(f"gRPC port {port} cannot be used: expected 0 to {PORT_MAX}")
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection(
        (service, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
    )
    for name in ("", service):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    address = f"{_bracketed(host)}:{port}"
    try:
        if certificates is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, certificates.server_credentials())
    except RuntimeError as err:
        raise SettingsError(f"gRPC port {port} cannot be used: {err}") from err
    await server.start()
    return bound


def _bracketed(host: str) -> str:
    """An IPv6 address needs brackets before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def new_channel(
    target: str,
    certificates: Certificates | None = None,
    *,
    expected: str = "",
    answer_bytes_max: int = LIST_BYTES_MAX,
) -> grpc.aio.Channel:
    """`expected` is the required name of the server certificate; empty: the host name."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", answer_bytes_max),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # A node that returns should be reachable within seconds.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    if certificates is None:
        return grpc.aio.insecure_channel(target, options=options)
    if expected:
        options.append(("grpc.ssl_target_name_override", expected))
    return grpc.aio.secure_channel(target, certificates.channel_credentials(), options=options)
