"""What a node is called when nobody has given it a name: by its host's, and by what no other machine has."""

import socket
from pathlib import Path

from persys.errors import SettingsError
from persys.model.ids import NodeId, node_id

_MACHINE_ID = Path("/etc/machine-id")
_MACHINE_ID_DIGITS = 12


def own_node_id(configured: str) -> NodeId:
    if configured:
        return node_id(configured, field="PERSYS_NODE_ID")
    try:
        machine_id = _MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError as err:
        raise SettingsError(
            f"PERSYS_NODE_ID is not set and {_MACHINE_ID} cannot be read: {err}"
        ) from err
    if not machine_id:
        raise SettingsError(f"PERSYS_NODE_ID is not set and {_MACHINE_ID} is empty")
    return node_id(f"{socket.gethostname()}-{machine_id[:_MACHINE_ID_DIGITS]}")
