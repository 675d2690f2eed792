"""Whether a port of this host is in use, found out by trying to take it."""

import errno
import socket

from persys.model.spec import Port


def is_taken(port: Port) -> bool:
    kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind is socket.SOCK_STREAM:
            # A connection that just ended does not hold the port; a listener does.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port.host_port))
        except OSError as err:
            return err.errno == errno.EADDRINUSE
    return False
