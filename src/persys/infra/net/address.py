"""Parses addresses, and finds the address of this machine that peers can reach.

Modules are imported inside the functions that need them: persysctl imports this module at start-up.
"""

from persys.errors import SettingsError

# Reserved for documentation: no machine has it, but the route to it is the default route.
_ELSEWHERE = "192.0.2.1:9"
_DNS_PORT = 53
_PORT_MAX = 65535


def is_service(address: str) -> bool:
    """Whether it is the name of a DNS service (SRV). Host names never begin with an underscore."""
    return address.startswith("_")


def split_server(server: str, *, variable: str = "PERSYS_DNS_SERVER") -> tuple[str, int]:
    """The address and port of a DNS server, from a setting. The port is optional.

    Raises SettingsError, also for a host name: it could not be resolved without a DNS server.
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
            f"{variable}={server!r}: expected an address, or address:port"
        ) from None
    return host, int(port)


def local_address_towards(target: str) -> str:
    """The local address that is used to reach `target` (host:port). Sends nothing."""
    import socket

    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as trial:
        trial.connect(address)
        own = str(trial.getsockname()[0])
    return f"[{own}]" if ":" in own else own


def default_route_address() -> str:
    """The local address on the default route. Raises OSError if there is no route."""
    return local_address_towards(_ELSEWHERE)
