"""Token verification, before a body is read and before an audit entry is written.

Only a scheduler knows which tokens are valid. A positive result is cached for some seconds, so a busy token
is not verified for every request; the scheduler also checks the token of every call. A negative result is
not cached: failures are counted per address, and an address with too many is refused.
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
        """The permissions of a token. Raises AioRpcError: UNAUTHENTICATED for an invalid token."""
        key = (who.key, cluster.id)
        now = self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            return kept.deeds
        answered = await cluster.call(
            "GetIdentity", pb.GetIdentityRequest(), key="", metadata=metadata, again=True
        )
        view: pb.IdentityView = answered.answer
        # A scheduler that runs with -insecure returns no role and allows everything.
        words = view.deeds if view.role else list(Deed)
        deeds = frozenset(Deed(word) for word in words if word in list(Deed))
        self._kept[key] = _Proof(now + KEEP_SECONDS, deeds)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return deeds
