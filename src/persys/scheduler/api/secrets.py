"""Secrets: put, list without values, delete. No RPC returns a value."""

from persys.infra.rpc.authorizer import CALLER
from persys.model.secret import Secret
from persys.scheduler.api.context import Context, need
from persys.scheduler.secrets.store import SecretStore
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp


class SecretsApi:
    def __init__(self, secrets: SecretStore, cluster: ClusterState) -> None:
        self._secrets = secrets
        self._cluster = cluster

    async def PutSecret(
        self, request: control_pb2.PutSecretRequest, context: Context
    ) -> control_pb2.SecretAnswer:
        need(request.name, "name")
        secret = await self._secrets.put(request.name, request.value, by=_caller())
        return control_pb2.SecretAnswer(accepted=True, secret=self._view(secret))

    async def ListSecrets(
        self, request: control_pb2.ListSecretsRequest, context: Context
    ) -> control_pb2.ListSecretsResponse:
        found = sorted(self._cluster.secrets.items())
        return control_pb2.ListSecretsResponse(secrets=[self._view(secret) for _, secret in found])

    async def DeleteSecret(
        self, request: control_pb2.DeleteSecretRequest, context: Context
    ) -> control_pb2.SecretAnswer:
        need(request.name, "name")
        await self._secrets.delete(request.name, by=_caller())
        return control_pb2.SecretAnswer(accepted=True)

    def _view(self, secret: Secret) -> control_pb2.SecretView:
        newest = secret.newest
        return control_pb2.SecretView(
            name=secret.name,
            version=newest.number,
            versions=[one.number for one in secret.versions],
            updated_at=timestamp(newest.created_at),
            updated_by=newest.by,
            used_by=self._cluster.secret_uses.users(secret.name),
        )


def _caller() -> str:
    caller = CALLER.get()
    return str(caller.identity) if caller is not None else ""
