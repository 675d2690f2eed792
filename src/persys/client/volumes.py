"""Volumes."""

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class VolumeCalls(SchedulerCalls):
    def list_volumes(
        self, *, node_id: str = "", workload_id: str = "", name: str = ""
    ) -> pb.ListVolumesResponse:
        """Includes the nodes that did not respond; they may have volumes too."""
        request = pb.ListVolumesRequest(node_id=node_id, workload_id=workload_id, name=name)
        response: pb.ListVolumesResponse = call(
            self._stub.ListVolumes, request, timeout=self._timeout
        )
        return response

    def delete_volume(self, workload_id: str, name: str, *, node_id: str = "") -> None:
        """Delete a volume and its data. Refused while its workload uses it."""
        request = pb.DeleteVolumeRequest(node_id=node_id, workload_id=workload_id, name=name)
        response = call(self._stub.DeleteVolume, request, timeout=self._timeout)
        if not response.success:
            raise RequestRefusedError(response.error_message)
