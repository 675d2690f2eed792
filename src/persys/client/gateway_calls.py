"""Calls that only a gateway serves: clusters, audit log, GitOps status."""

from typing import TYPE_CHECKING, Any, cast

from persys.client.calls import SchedulerCalls
from persys.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from persys.client.rest import RestStub

Plain = dict[str, Any]


class GatewayCalls(SchedulerCalls):
    @property
    def is_gateway(self) -> bool:
        return hasattr(self._channel, "fetch")  # isinstance would import the REST client

    def list_clusters(self) -> Plain:
        """`clusters`, each with its schedulers, and `default_cluster_id`."""
        return self._fetch("/clusters")

    def get_audit(self, *, limit: int = 0, cursor: str = "") -> Plain:
        """`deeds`, newest first, and `next_cursor` for older ones. Requires the tokens permission."""
        asked = {"limit": str(limit) if limit else "", "cursor": cursor}
        words = "&".join(f"{name}={value}" for name, value in asked.items() if value)
        return self._fetch(f"/audit?{words}" if words else "/audit")

    def get_gitops(self) -> Plain:
        """`workloads` that follow a git branch, and `problems` of unreachable clusters."""
        return self._fetch("/gitops", in_cluster=True)

    def _fetch(self, path: str, *, in_cluster: bool = False) -> Plain:
        import json

        if not self.is_gateway:
            raise RefusedError("not supported by a scheduler; use a gateway (--api URL)")
        stub = cast("RestStub", self._channel)
        content = stub.fetch(path, in_cluster=in_cluster, timeout=self._timeout)
        try:
            return cast("Plain", json.loads(content))
        except ValueError as err:
            raise UnavailableError(f"invalid response from {self.target}: expected JSON") from err
