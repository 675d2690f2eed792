"""Chooses the scheduler when several are given or DNS lists them: the first that is reachable.

The others are fallbacks: when the connection breaks, gRPC connects to the next one, also during a watch.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from persys.errors import UnavailableError
from persys.infra.net.address import is_service

CONNECT_TIMEOUT_SECONDS = 2.0


def resolve_scheduler(named: str, *, timeout: timedelta) -> str:
    """A gRPC target. `named` is a host:port, the name of an SRV record, or several separated by commas."""
    if "," not in named and not is_service(named):
        return named  # the common case needs no connection attempt
    addresses: list[str] = []
    errors: list[UnavailableError] = []
    for one in named.split(","):
        try:
            addresses += _addresses(one, timeout)
        except UnavailableError as err:
            errors.append(err)
    if not addresses:
        raise errors[0]
    first = next((one for one in addresses if _is_reachable(one)), addresses[0])
    return _grpc_target([first, *(one for one in addresses if one != first)])


def _addresses(named: str, timeout: timedelta) -> Sequence[str]:
    if not is_service(named):
        return (named,)
    from persys.infra.net.srv import find_service  # slow to import

    server = os.environ.get("PERSYS_DNS_SERVER", "")
    return find_service(named, server=server, deadline_seconds=timeout.total_seconds())


def _is_reachable(address: str) -> bool:
    import socket

    host, _, port = address.rpartition(":")
    with (
        suppress(OSError),
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_SECONDS),
    ):
        return True
    return False


def _grpc_target(addresses: Sequence[str]) -> str:
    """All addresses as one gRPC target, which allows only one address family: that of the first."""
    import socket

    found: list[tuple[int, str]] = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        with suppress(OSError, ValueError):
            known = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            family, _, _, _, place = known[0]
            ip = f"[{place[0]}]" if family is socket.AF_INET6 else str(place[0])
            found.append((family, f"{ip}:{port}"))
    if not found:
        return addresses[0]
    first = found[0][0]
    scheme = "ipv6" if first is socket.AF_INET6 else "ipv4"
    return f"{scheme}:{','.join(address for family, address in found if family is first)}"
