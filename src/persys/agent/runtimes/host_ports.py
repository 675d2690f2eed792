"""Checks whether a container failed to start because a host port is in use.

Docker returns status 500 for a port in use as well as for its own errors, so the ports are checked directly.
"""

import errno
import socket
from collections.abc import Iterable

from persys.agent.runtimes.docker_engine import Engine, EngineError, as_unavailable, understood
from persys.agent.runtimes.docker_form import Owner
from persys.model.ids import WorkloadId
from persys.model.spec import Port
from persys.model.status import Failure, FailureReason


async def port_taken(
    engine: Engine, owner: Owner, workload_id: WorkloadId, ports: Iterable[Port]
) -> Failure | None:
    """The failure for the first port in use by another process, or None."""
    try:
        found = await engine.call("GET", "containers/json")
    except EngineError as err:
        raise as_unavailable(err) from err
    own: set[tuple[int, str]] = set()
    others: set[tuple[int, str]] = set()
    with understood("the ports of containers"):
        for one in found:
            mine = owner.owns(one.get("Labels") or {}, workload_id)
            for port in one["Ports"]:
                if "PublicPort" in port:
                    (own if mine else others).add((port["PublicPort"], port["Type"]))
    for port in ports:
        key = (port.host_port, port.protocol)
        if port.host_port and (key in others or (key not in own and _is_taken(port))):
            text = f"host port {port.host_port}/{port.protocol} is already in use on this node"
            return Failure(FailureReason.NETWORK_ERROR, text, code="PortTaken")
    return None


def _is_taken(port: Port) -> bool:
    """Try to bind the port."""
    kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind is socket.SOCK_STREAM:
            # A recently closed connection does not block the port; a listener does.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port.host_port))
        except OSError as err:
            return err.errno == errno.EADDRINUSE
    return False
