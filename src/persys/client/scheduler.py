"""Client of a cluster, through a scheduler or a gateway. Responses are protobuf messages.

The calls of admins are here: tokens, secrets, quarantined records, and what only a gateway serves.
"""

from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from persys.client.calls import SchedulerCalls
from persys.client.cluster import ClusterCalls, NodeCalls
from persys.client.grpc.channel import RequestRefusedError, call
from persys.client.sets_jobs import JobCalls, ServiceCalls, SetCalls
from persys.client.workloads import WorkloadCalls
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from persys.client.rest.stub import RestStub
    from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

Plain = dict[str, Any]


class AdminCalls(SchedulerCalls):
    def create_token(
        self,
        name: str,
        role: str,
        *,
        deeds: Iterable[str] = (),
        ttl: timedelta | None = None,
        prefix: str = "",
    ) -> pb.CreateTokenResponse:
        """The response contains the secret, which cannot be read again. No `deeds`: all of the role.

        A scheduler that does not know prefixes would ignore `prefix`: its token is revoked at once.
        """
        seconds = max(1, round(ttl.total_seconds())) if ttl is not None else 0
        request = pb.CreateTokenRequest(
            name=name, role=role, deeds=deeds, ttl_seconds=seconds, prefix=prefix
        )
        response: pb.CreateTokenResponse = call(
            self._stub.CreateToken, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        if response.token.prefix != prefix:
            self.revoke_token(response.token.token_id)
            raise RequestRefusedError(
                "this scheduler does not support a prefix; the token was revoked: update the scheduler"
            )
        return response

    def list_tokens(self) -> list[pb.TokenView]:
        """Newest first."""
        request = pb.ListTokensRequest()
        response: pb.ListTokensResponse = call(
            self._stub.ListTokens, request, timeout=self._timeout
        )
        return list(response.tokens)

    def revoke_token(self, token_id: str) -> None:
        request = pb.RevokeTokenRequest(token_id=token_id)
        response: pb.TokenAnswer = call(self._stub.RevokeToken, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)

    def put_secret(self, name: str, value: bytes) -> pb.SecretView:
        """Store a new version. Specs refer to it as secret://NAME; running workloads keep their version."""
        request = pb.PutSecretRequest(name=name, value=value)
        response: pb.SecretAnswer = call(self._stub.PutSecret, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.secret

    def list_secrets(self) -> list[pb.SecretView]:
        request = pb.ListSecretsRequest()
        response: pb.ListSecretsResponse = call(
            self._stub.ListSecrets, request, timeout=self._timeout
        )
        return list(response.secrets)

    def delete_secret(self, name: str) -> None:
        """Delete all versions. Refused while workloads refer to the secret."""
        request = pb.DeleteSecretRequest(name=name)
        response: pb.SecretAnswer = call(self._stub.DeleteSecret, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)

    def create_node_pool(self, spec: pb.NodePoolSpec) -> pb.NodePoolView:
        """Create or update a node pool."""
        request = pb.CreateNodePoolRequest(pool=spec)
        return self._pool(call(self._stub.CreateNodePool, request, timeout=self._timeout))

    def list_node_pools(self) -> list[pb.NodePoolView]:
        response: pb.ListNodePoolsResponse = call(
            self._stub.ListNodePools, pb.ListNodePoolsRequest(), timeout=self._timeout
        )
        return list(response.pools)

    def get_node_pool(self, pool_id: str) -> pb.NodePoolView:
        request = pb.GetNodePoolRequest(pool_id=pool_id)
        response: pb.GetNodePoolResponse = call(
            self._stub.GetNodePool, request, timeout=self._timeout
        )
        return response.pool

    def plan_node_pool(self, pool_id: str) -> pb.PlanNodePoolResponse:
        """What the pool would do now, and its cost. Changes nothing."""
        request = pb.PlanNodePoolRequest(pool_id=pool_id)
        response: pb.PlanNodePoolResponse = call(
            self._stub.PlanNodePool, request, timeout=self._timeout
        )
        return response

    def pause_node_pool(self, pool_id: str, *, paused: bool) -> pb.NodePoolView:
        """A paused pool creates no machines."""
        request = pb.PauseNodePoolRequest(pool_id=pool_id, paused=paused)
        return self._pool(call(self._stub.PauseNodePool, request, timeout=self._timeout))

    def delete_node_pool(self, pool_id: str) -> pb.NodePoolView:
        """Its machines are drained and destroyed, then the pool is deleted."""
        request = pb.DeleteNodePoolRequest(pool_id=pool_id)
        return self._pool(call(self._stub.DeleteNodePool, request, timeout=self._timeout))

    def _pool(self, response: pb.NodePoolAnswer) -> pb.NodePoolView:
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.pool

    @property
    def is_gateway(self) -> bool:
        return hasattr(self._channel, "fetch")  # isinstance would import the REST client

    def list_clusters(self) -> Plain:
        """`clusters`, each with its schedulers, and `default_cluster_id`."""
        return self._fetch("/clusters")

    def get_audit(self, *, limit: int = 0, cursor: str = "") -> Plain:
        """`entries`, newest first, and `next_cursor` for older ones. Requires the tokens permission."""
        parameters = {"limit": str(limit) if limit else "", "cursor": cursor}
        query = "&".join(f"{name}={value}" for name, value in parameters.items() if value)
        found = self._fetch(f"/audit?{query}" if query else "/audit")
        if "entries" not in found:  # a gateway of an earlier version
            entries = [{**entry, "action": entry["deed"]} for entry in found["deeds"]]
            found = {**found, "entries": entries}
        return found

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

    def list_records(self) -> list[pb.QuarantinedRecord]:
        """Unreadable records, and assignments without a workload record."""
        request = pb.ListRecordsRequest()
        response: pb.ListRecordsResponse = call(
            self._stub.ListRecords, request, timeout=self._timeout
        )
        return list(response.records)

    def get_record(self, key: str) -> pb.RecordView:
        request = pb.GetRecordRequest(key=key)
        response: pb.RecordView = call(self._stub.GetRecord, request, timeout=self._timeout)
        return response

    def delete_record(self, key: str, *, version: int = 0) -> str:
        """Returns the remaining steps. With `version`, deletes only that version (from get_record)."""
        request = pb.DeleteRecordRequest(key=key, stored_version=version)
        response: pb.DeleteRecordResponse = call(
            self._stub.DeleteRecord, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.detail


class SchedulerClient(
    WorkloadCalls, SetCalls, JobCalls, ServiceCalls, NodeCalls, ClusterCalls, AdminCalls
):
    """Safe for use by several threads. After UnavailableError, a change may or may not have been made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    @property
    def stub(self) -> "AgentControlStub":
        """For programs that need calls which this client does not have. Its errors are not translated."""
        return self._stub
