"""The id of this node when none is configured: the id that it already has, else its host name."""

import socket

from persys.model.ids import NodeId, node_id


def own_node_id(configured: str, kept: str = "") -> NodeId:
    """`kept` is the id from an earlier start: a new default or host name does not rename a node."""
    if configured:
        return node_id(configured, field="PERSYS_NODE_ID")
    return node_id(kept or socket.gethostname(), field="PERSYS_NODE_ID is not set; the host name")
