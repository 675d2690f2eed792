"""Addresses as people write them, and which one of this machine others can use.

Modules are imported where they are used: the command line is here only to know a service from a host.
"""

from persys.errors import SettingsError

# Reserved for documents: there is no such machine, but the way there is the way out.
_ELSEWHERE = "192.0.2.1:9"
_DNS_PORT = 53
_PORT_MAX = 65535


def is_service(address: str) -> bool:
    """Whether it names a service, which DNS knows the hosts of. No name of a host begins like that."""
    return address.startswith("_")


def split_server(server: str) -> tuple[str, int]:
    """Address and port of a DNS server, which may be written without the port.

    Raises SettingsError also for a name: it would have to be asked for first.
    """
    from ipaddress import ip_address

    host, port = server, str(_DNS_PORT)
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif server.count(":") == 1:  # an IPv6 address alone has more
        host, _, port = server.partition(":")
    try:
        ip_address(host)
        if not 0 < int(port) <= _PORT_MAX:
            raise ValueError
    except ValueError:
        raise SettingsError(
            f"PERSYS_DNS_SERVER={server!r}: expected an address, or address:port"
        ) from None
    return host, int(port)


def address_towards(target: str) -> str:
    """The address of this machine from which it reaches `target` (host:port). Sends nothing."""
    import socket

    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as trial:
        trial.connect(address)
        own = str(trial.getsockname()[0])
    return f"[{own}]" if ":" in own else own


def address_outward() -> str:
    """The address from which it reaches other networks. OSError: it reaches none."""
    return address_towards(_ELSEWHERE)
