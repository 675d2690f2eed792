"""Sets with their rollouts, jobs with their runs, and services with their endpoints."""

from collections.abc import Callable

from google.protobuf.message import Message

from persys.client.calls import SchedulerCalls
from persys.client.grpc.channel import RequestRefusedError, call
from persys.wire.gen.control.v1 import control_pb2 as pb

_WITHOUT_A_REASON = "refused by the scheduler without a reason"


class SetCalls(SchedulerCalls):
    def apply_set(self, request: pb.ApplySetRequest) -> pb.SetAnswer:
        """Create or update a set. `outcome` of the answer is created, updated or unchanged."""
        return self._change_set(self._stub.ApplySet, request)

    def set_desired_state_of_set(self, set_id: str, desired_state: str) -> pb.SetView:
        """Start or stop all members, at the current revision."""
        request = pb.ApplySetRequest(set=pb.SetSpec(set_id=set_id), desired_state=desired_state)
        return self.apply_set(request).set

    def list_sets(self) -> list[pb.SetView]:
        """Without members and revisions."""
        response: pb.ListSetsResponse = call(
            self._stub.ListSets, pb.ListSetsRequest(), timeout=self._timeout
        )
        return list(response.sets)

    def get_set(self, set_id: str) -> pb.SetView:
        request = pb.GetSetRequest(set_id=set_id)
        response: pb.GetSetResponse = call(self._stub.GetSet, request, timeout=self._timeout)
        return response.set

    def delete_set(self, set_id: str) -> pb.SetView:
        """Returns when the request is stored; get_set raises NotFoundError after the deletion."""
        return self._change_set(self._stub.DeleteSet, pb.SetRequest(set_id=set_id)).set

    def scale_set(self, set_id: str, replicas: int) -> pb.SetView:
        request = pb.ScaleSetRequest(set_id=set_id, replicas=replicas)
        return self._change_set(self._stub.ScaleSet, request).set

    def pause_rollout(self, set_id: str) -> pb.SetView:
        return self._change_set(self._stub.PauseRollout, pb.SetRequest(set_id=set_id)).set

    def resume_rollout(self, set_id: str) -> pb.SetView:
        return self._change_set(self._stub.ResumeRollout, pb.SetRequest(set_id=set_id)).set

    def promote_rollout(self, set_id: str) -> pb.SetView:
        """Continue after the canary members."""
        return self._change_set(self._stub.PromoteRollout, pb.SetRequest(set_id=set_id)).set

    def undo_rollout(self, set_id: str, revision: int = 0) -> pb.SetView:
        """Start a rollout to an earlier revision; 0: the one before the current one."""
        request = pb.UndoRolloutRequest(set_id=set_id, revision=revision)
        return self._change_set(self._stub.UndoRollout, request).set

    def _change_set(self, method: Callable[..., pb.SetAnswer], request: Message) -> pb.SetAnswer:
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason or _WITHOUT_A_REASON)
        return response


class JobCalls(SchedulerCalls):
    def apply_job(self, request: pb.ApplyJobRequest) -> pb.JobAnswer:
        """Create or update a job. `outcome` of the answer is created, updated or unchanged."""
        return self._change_job(self._stub.ApplyJob, request)

    def list_jobs(self) -> list[pb.JobView]:
        """Each with its newest run only."""
        response: pb.ListJobsResponse = call(
            self._stub.ListJobs, pb.ListJobsRequest(), timeout=self._timeout
        )
        return list(response.jobs)

    def get_job(self, job_id: str) -> pb.JobView:
        """With its runs, the newest first."""
        request = pb.GetJobRequest(job_id=job_id)
        response: pb.GetJobResponse = call(self._stub.GetJob, request, timeout=self._timeout)
        return response.job

    def delete_job(self, job_id: str) -> pb.JobView:
        """Its runs are cancelled and deleted, with their logs."""
        return self._change_job(self._stub.DeleteJob, pb.JobRequest(job_id=job_id)).job

    def run_job(self, job_id: str) -> pb.JobAnswer:
        """Start a run now, `run_id` of the answer. `reason` names other runs that are in progress."""
        return self._change_job(self._stub.RunJob, pb.JobRequest(job_id=job_id))

    def suspend_job(self, job_id: str, *, suspended: bool = True) -> pb.JobView:
        """A suspended job starts no scheduled runs; runs in progress continue."""
        request = pb.SuspendJobRequest(job_id=job_id, suspended=suspended)
        return self._change_job(self._stub.SuspendJob, request).job

    def cancel_run(self, job_id: str, run_id: str) -> pb.JobView:
        """Stop a run that is in progress."""
        request = pb.CancelRunRequest(job_id=job_id, run_id=run_id)
        return self._change_job(self._stub.CancelRun, request).job

    def _change_job(self, method: Callable[..., pb.JobAnswer], request: Message) -> pb.JobAnswer:
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason or _WITHOUT_A_REASON)
        return response


class ServiceCalls(SchedulerCalls):
    def apply_service(self, service: pb.ServiceSpec) -> pb.ServiceAnswer:
        """Create or update a service. `outcome` of the answer is created, updated or unchanged."""
        request = pb.ApplyServiceRequest(service=service)
        return self._change_service(self._stub.ApplyService, request)

    def list_services(self, *, endpoints: bool = False) -> list[pb.ServiceView]:
        """With `endpoints`, each with its endpoints."""
        request = pb.ListServicesRequest(endpoints=endpoints)
        response: pb.ListServicesResponse = call(
            self._stub.ListServices, request, timeout=self._timeout
        )
        return list(response.services)

    def get_service(self, service_id: str) -> pb.ServiceView:
        """With its endpoints, and the members that are not endpoints."""
        request = pb.GetServiceRequest(service_id=service_id)
        response: pb.GetServiceResponse = call(
            self._stub.GetService, request, timeout=self._timeout
        )
        return response.service

    def delete_service(self, service_id: str) -> pb.ServiceView:
        """Its members continue to run."""
        request = pb.ServiceRequest(service_id=service_id)
        return self._change_service(self._stub.DeleteService, request).service

    def _change_service(
        self, method: Callable[..., pb.ServiceAnswer], request: Message
    ) -> pb.ServiceAnswer:
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason or _WITHOUT_A_REASON)
        return response
