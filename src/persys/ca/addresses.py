"""The addresses of the CA in join tokens, and the host names of its own certificate."""

import socket
from collections.abc import Sequence

from persys.core.auth.enrolment import granted_hosts
from persys.errors import InvalidError
from persys.infra.net.address import address_outward

_LOCAL = ("localhost", "127.0.0.1", "::1")
_ANY = ("", "0.0.0.0", "::")


def addresses(advertised: Sequence[str], listening: str, port: int) -> list[str]:
    """host:port pairs; a joining node tries each."""
    if advertised:
        return list(advertised)
    if listening not in _ANY:
        return [f"[{listening}]:{port}" if ":" in listening else f"{listening}:{port}"]
    try:
        return [f"{address_outward()}:{port}"]
    except OSError:  # no route: the CA is reachable locally only
        return [f"127.0.0.1:{port}"]


def own_hosts(found_at: Sequence[str]) -> tuple[str, ...]:
    hosts = [address.rpartition(":")[0].strip("[]") for address in found_at]
    return tuple(dict.fromkeys(_usable([*hosts, socket.gethostname(), *_LOCAL])))


def _usable(hosts: Sequence[str]) -> list[str]:
    usable: list[str] = []
    for host in hosts:
        try:
            usable += granted_hosts([host])
        except InvalidError:
            continue  # for example a host name with an invalid underscore
    return usable
