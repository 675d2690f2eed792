"""Secrets. Values cannot be read back."""

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class SecretCalls(SchedulerCalls):
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
