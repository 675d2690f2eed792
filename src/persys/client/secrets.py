"""Calls about secrets. No call reads a value back."""

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class SecretCalls(SchedulerCalls):
    def put_secret(self, name: str, value: bytes) -> pb.SecretView:
        """A new version, which specs name as secret://NAME. What runs keeps the one it has."""
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
        """All its versions. Refused while workloads name it."""
        request = pb.DeleteSecretRequest(name=name)
        response: pb.SecretAnswer = call(self._stub.DeleteSecret, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)
