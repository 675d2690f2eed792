"""The id of this node: the configured one, else the stored one, else the host name."""

import socket

from persys.model.ids import NodeId, node_id


def own_node_id(configured: str, stored: str = "") -> NodeId:
    """`stored` is the id of an earlier start: a new host name does not rename a node."""
    if configured:
        return node_id(configured, field="PERSYS_NODE_ID")
    return node_id(stored or socket.gethostname(), field="PERSYS_NODE_ID is not set; the host name")
