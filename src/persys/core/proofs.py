"""Proofs of assignment: what a node reports about a workload that is not assigned to it counts only with one.

The scheduler sends a proof with each order: a code over workload, node and epoch under a key of the cluster.
The agent keeps it and reports it with the epoch. So a node can show that it was given the workload, also when
the store was restored from a copy that does not know of it; and no node can claim what it was never given.
"""

import hashlib
import hmac

from persys.model.ids import NodeId, WorkloadId

PROOF_BYTES = 16
KEY_BITS = 256


def prove(key: str, workload_id: WorkloadId, node_id: NodeId, epoch: int) -> bytes:
    """Empty without a key. `key` is hexadecimal."""
    if not key:
        return b""
    text = f"{workload_id}\n{node_id}\n{epoch}".encode()
    return hmac.digest(bytes.fromhex(key), text, hashlib.sha256)[:PROOF_BYTES]


def is_proven(key: str, workload_id: WorkloadId, node_id: NodeId, epoch: int, proof: bytes) -> bool:
    expected = prove(key, workload_id, node_id, epoch)
    return bool(expected) and hmac.compare_digest(expected, proof)
