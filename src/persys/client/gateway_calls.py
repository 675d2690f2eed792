"""Calls that only a gateway answers: its clusters, its audit, what follows a repository."""

from typing import Any, cast

import msgspec

from persys.client.calls import SchedulerCalls
from persys.errors import RefusedError, UnavailableError
from persys.wire.rest import API

Plain = dict[str, Any]


class GatewayCalls(SchedulerCalls):
    @property
    def is_gateway(self) -> bool:
        from persys.client.rest import RestStub

        return isinstance(self._channel, RestStub)

    def list_clusters(self) -> Plain:
        """`clusters`, each with its schedulers, and `default_cluster_id`."""
        return self._fetch("/clusters")

    def get_audit(self, *, limit: int = 0, cursor: str = "") -> Plain:
        """`deeds`, newest first, and `next_cursor` for those before. For who may say who comes in."""
        asked = {"limit": str(limit) if limit else "", "cursor": cursor}
        words = "&".join(f"{name}={value}" for name, value in asked.items() if value)
        return self._fetch(f"/audit?{words}" if words else "/audit")

    def get_gitops(self) -> Plain:
        """`workloads` that follow a repository and branch, and `problems` of clusters that are silent."""
        return self._fetch("/gitops", in_cluster=True)

    def _fetch(self, path: str, *, in_cluster: bool = False) -> Plain:
        from persys.client.rest import RestStub

        if not isinstance(self._channel, RestStub):
            raise RefusedError("a scheduler does not know this; ask a gateway (--api URL)")
        stub: RestStub = self._channel
        content = stub.fetch(API + path, in_cluster=in_cluster, timeout=self._timeout)
        try:
            return cast("Plain", msgspec.json.decode(content, type=dict))
        except msgspec.DecodeError as err:
            raise UnavailableError(f"{self.target} answers what is no JSON") from err
