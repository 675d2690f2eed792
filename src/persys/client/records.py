"""Quarantined records: stored records that cannot be read."""

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class RecordCalls(SchedulerCalls):
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
