"""Which scheduler to talk to, when several are named or DNS is to say: the first that can be reached."""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from persys.errors import UnavailableError
from persys.infra.address import is_service

TRIAL_SECONDS = 2.0


def find_scheduler(named: str, *, timeout: timedelta) -> str:
    """One host:port. `named` is such an address, the name of a service, or several with commas between."""
    if "," not in named and not is_service(named):
        return named  # the common case tries nothing
    addresses: list[str] = []
    trouble: list[UnavailableError] = []
    for one in named.split(","):
        try:
            addresses += _behind(one, timeout)
        except UnavailableError as err:
            trouble.append(err)
    if not addresses:
        raise trouble[0]
    return next((one for one in addresses if _is_reachable(one)), addresses[0])


def _behind(named: str, timeout: timedelta) -> Sequence[str]:
    if not is_service(named):
        return (named,)
    from persys.infra.srv import find_service  # takes longer than most commands

    server = os.environ.get("PERSYS_DNS_SERVER", "")
    return find_service(named, server=server, deadline_seconds=timeout.total_seconds())


def _is_reachable(address: str) -> bool:
    import socket

    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), TRIAL_SECONDS):
        return True
    return False
