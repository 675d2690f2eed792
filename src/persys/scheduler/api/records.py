"""Unreadable stored records: list them, get one with its bytes, delete one."""

from persys.scheduler.api.context import Context, need
from persys.scheduler.recovery.record_repair import RecordRepair
from persys.scheduler.state.quarantine import Quarantined
from persys.wire.gen.control.v1 import control_pb2

SHOWN_MAX = 10_000


class RecordsApi:
    def __init__(self, repair: RecordRepair) -> None:
        self._repair = repair

    async def ListRecords(
        self, request: control_pb2.ListRecordsRequest, context: Context
    ) -> control_pb2.ListRecordsResponse:
        shown = self._repair.all()[:SHOWN_MAX]
        return control_pb2.ListRecordsResponse(records=map(record_view, shown))

    async def GetRecord(
        self, request: control_pb2.GetRecordRequest, context: Context
    ) -> control_pb2.RecordView:
        need(request.key, "key")
        record, stored = await self._repair.get(request.key)
        return control_pb2.RecordView(
            record=record_view(record), value=stored.value, stored_version=stored.version
        )

    async def DeleteRecord(
        self, request: control_pb2.DeleteRecordRequest, context: Context
    ) -> control_pb2.DeleteRecordResponse:
        need(request.key, "key")
        deleted = await self._repair.delete(request.key, version=request.stored_version)
        return control_pb2.DeleteRecordResponse(accepted=True, detail=deleted.next_step)


def record_view(record: Quarantined) -> control_pb2.QuarantinedRecord:
    return control_pb2.QuarantinedRecord(
        key=record.key, reason=record.reason, type=record.kind, replaceable=record.replaceable
    )
