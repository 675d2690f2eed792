"""API tokens."""

from collections.abc import Iterable
from datetime import timedelta

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class TokenCalls(SchedulerCalls):
    def create_token(
        self, name: str, role: str, *, deeds: Iterable[str] = (), ttl: timedelta | None = None
    ) -> pb.CreateTokenResponse:
        """The response contains the secret, which cannot be read again. No `deeds`: all of the role."""
        seconds = max(1, round(ttl.total_seconds())) if ttl is not None else 0
        request = pb.CreateTokenRequest(name=name, role=role, deeds=deeds, ttl_seconds=seconds)
        response: pb.CreateTokenResponse = call(
            self._stub.CreateToken, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(response.reason)
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
