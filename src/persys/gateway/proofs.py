"""Verifies tokens before anything is done for them: before a body is read, before a deed is recorded.

Only a scheduler knows which tokens are valid. A positive answer is kept for some seconds, so that a busy
token is not verified at each request; the call itself is always verified by the scheduler again. A negative
answer is not kept: the gateway counts those per address and stops asking.
"""

from collections import OrderedDict

from msgspec import Struct

from persys.gateway.cluster import Cluster, Metadata
from persys.gateway.identity import Who
from persys.infra.clock import Clock
from persys.model.identity import Deed
from persys.wire.gen.control.v1 import control_pb2 as pb

KEEP_SECONDS = 10.0
KEPT_MAX = 4096


class _Proof(Struct, frozen=True):
    until: float
    deeds: frozenset[Deed]


class Proofs:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Proof] = OrderedDict()

    async def deeds_of(self, who: Who, cluster: Cluster, metadata: Metadata) -> frozenset[Deed]:
        """What the holder of a token may do. Raises AioRpcError: UNAUTHENTICATED for an invalid token."""
        key = (who.key, cluster.id)
        now = self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            return kept.deeds
        answered = await cluster.call(
            "GetIdentity", pb.GetIdentityRequest(), key="", metadata=metadata, again=True
        )
        view: pb.IdentityView = answered.answer
        # A scheduler that runs -insecure names no role and allows everything.
        words = view.deeds if view.role else list(Deed)
        deeds = frozenset(Deed(word) for word in words if word in list(Deed))
        self._kept[key] = _Proof(now + KEEP_SECONDS, deeds)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return deeds
