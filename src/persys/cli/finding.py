"""Which scheduler to talk to, when several are named or DNS is to say: the first that can be reached."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from persys.errors import UnavailableError
from persys.infra.address import is_service, split_server

TRIAL_SECONDS = 2.0


def find_scheduler(named: str, *, timeout: timedelta) -> str:
    """One host:port. `named` is such an address, the name of a service, or several with commas between."""
    if "," not in named and not is_service(named):
        return named  # the common case tries nothing
    addresses = list(_addresses(named, timeout))
    return next((one for one in addresses if _is_reachable(one)), addresses[0])


def _addresses(named: str, timeout: timedelta) -> Iterator[str]:
    """Raises UnavailableError when DNS does not know the last of them either."""
    trouble: UnavailableError | None = None
    found = False
    for one in named.split(","):
        try:
            for address in _behind(one, timeout) if is_service(one) else (one,):
                found = True
                yield address
        except UnavailableError as err:
            trouble = err
    if not found and trouble is not None:
        raise trouble


def _behind(service: str, timeout: timedelta) -> list[str]:
    from persys.infra.srv import find_service  # most have plain addresses

    server = os.environ.get("PERSYS_DNS_SERVER", "")
    if server:
        split_server(server)
    return find_service(service, server=server, deadline_seconds=timeout.total_seconds())


def _is_reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), TRIAL_SECONDS):
        return True
    return False
