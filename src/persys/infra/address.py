"""Which address of this machine others can use."""

import socket

# Reserved for documents: there is no such machine, but the way there is the way out.
_ELSEWHERE = "192.0.2.1:9"


def address_towards(target: str) -> str:
    """The address of this machine from which it reaches `target` (host:port). Sends nothing."""
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
