"""Secrets of workloads and tokens of users.

No RPC returns the value of a secret. The text of a token is returned once, by CreateToken.
"""

from datetime import timedelta

from persys.core.auth import tokens as rules
from persys.errors import InvalidError, RefusedError
from persys.infra.rpc.authorizer import CALLER
from persys.model.identity import Token
from persys.model.secret import Secret
from persys.scheduler.api.methods import Context, need
from persys.scheduler.auth.tokens import Tokens
from persys.scheduler.secrets.store import SecretStore
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

_TTL_SECONDS_MAX = round(rules.LIFE_MOST.total_seconds())
_NOT_AUTHENTICATED = (
    "tokens cannot be created while the scheduler runs with -insecure: "
    "callers are not authenticated, and the tokens would be valid after TLS is enabled"
)


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


class IdentityApi:
    async def GetIdentity(
        self, request: control_pb2.GetIdentityRequest, context: Context
    ) -> control_pb2.IdentityView:
        caller = CALLER.get()
        if caller is None:
            return control_pb2.IdentityView()
        return control_pb2.IdentityView(
            role=caller.identity.role,
            name=caller.identity.name,
            deeds=sorted(caller.deeds),
            expires_at=timestamp(caller.expires_at),
            serial=caller.serial,
            token_id=caller.token_id,
            prefix=caller.prefix,
        )


class TokensApi:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def CreateToken(
        self, request: control_pb2.CreateTokenRequest, context: Context
    ) -> control_pb2.CreateTokenResponse:
        caller = CALLER.get()
        if caller is None:
            raise RefusedError(_NOT_AUTHENTICATED)
        token, text = await self._tokens.create(_token_request(request), caller)
        return control_pb2.CreateTokenResponse(accepted=True, token=_view(token), secret=text)

    async def ListTokens(
        self, request: control_pb2.ListTokensRequest, context: Context
    ) -> control_pb2.ListTokensResponse:
        return control_pb2.ListTokensResponse(tokens=map(_view, self._tokens.all()))

    async def RevokeToken(
        self, request: control_pb2.RevokeTokenRequest, context: Context
    ) -> control_pb2.TokenAnswer:
        need(request.token_id, "token_id")
        caller = CALLER.get()
        by = rules.signature(caller) if caller is not None else "anybody"
        await self._tokens.revoke(request.token_id, by)
        return control_pb2.TokenAnswer(accepted=True)


def _token_request(request: control_pb2.CreateTokenRequest) -> rules.NewToken:
    need(request.name, "name")
    seconds = request.ttl_seconds
    if not 0 <= seconds <= _TTL_SECONDS_MAX:  # before a timedelta overflows
        raise InvalidError("ttl", f"expected 1m to {rules.LIFE_MOST.days}d")
    return rules.NewToken(
        request.name,
        request.role,
        tuple(request.deeds),
        timedelta(seconds=seconds) if seconds else None,
        request.prefix,
    )


def _view(token: Token) -> control_pb2.TokenView:
    return control_pb2.TokenView(
        token_id=token.id,
        name=token.name,
        role=token.role,
        deeds=sorted(rules.allowed(token)),
        created_at=timestamp(token.created_at),
        created_by=token.created_by,
        expires_at=timestamp(token.expires_at),
        prefix=token.prefix,
    )
