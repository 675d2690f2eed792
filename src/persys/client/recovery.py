"""Identity, mode, snapshots and recovery. Calls that transfer the whole state have a long deadline."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from persys.client.call import RequestRefusedError, call, our_errors
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb

LONG_TIMEOUT = timedelta(minutes=10)


class RecoveryCalls(SchedulerCalls):
    def get_identity(self) -> pb.IdentityView:
        request = pb.GetIdentityRequest()
        response: pb.IdentityView = call(self._stub.GetIdentity, request, timeout=self._timeout)
        return response

    def get_mode(self) -> pb.ModeView:
        request = pb.GetModeRequest()
        response: pb.ModeView = call(self._stub.GetMode, request, timeout=self._timeout)
        return response

    def get_diagnostics(self) -> pb.DiagnosticsView:
        """Internal errors, quarantined records and policy violations."""
        request = pb.GetDiagnosticsRequest()
        response: pb.DiagnosticsView = call(
            self._stub.GetDiagnostics, request, timeout=self._timeout
        )
        return response

    def save_snapshot(self) -> Iterator[bytes]:
        """The chunks of the file, in order."""
        stream = self._stub.SaveSnapshot(
            pb.SaveSnapshotRequest(), timeout=self._long().total_seconds()
        )
        with our_errors():
            for chunk in stream:
                yield chunk.data

    def restore_snapshot(self, chunks: Iterable[bytes]) -> pb.RecoveryAnswer:
        messages = (pb.SnapshotChunk(data=chunk) for chunk in chunks)
        return self._recover(self._stub.RestoreSnapshot, messages)

    def rebuild_from_agents(
        self, *, dry_run: bool = False, allow_secrets: Iterable[str] = ()
    ) -> pb.RecoveryAnswer:
        """Workloads whose secrets are known only from nodes are skipped unless in `allow_secrets`."""
        request = pb.RebuildFromAgentsRequest(dry_run=dry_run, allow_secrets=allow_secrets)
        return self._recover(self._stub.RebuildFromAgents, request)

    def accept_empty(self) -> pb.RecoveryAnswer:
        return self._recover(self._stub.AcceptEmpty, pb.AcceptEmptyRequest())

    def _recover(
        self, method: Callable[..., pb.RecoveryAnswer], request: object
    ) -> pb.RecoveryAnswer:
        response = call(method, request, timeout=self._long())
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response

    def _long(self) -> timedelta:
        return max(self._timeout, LONG_TIMEOUT)
