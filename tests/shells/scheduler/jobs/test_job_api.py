"""The RPCs of jobs: what they accept, refuse and show."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.jobs.calls_of_jobs import JobCalls, a_job
from shells.scheduler.jobs.virtual_cluster import (
    AbortedError,
    Ending,
    VirtualCluster,
    a_virtual_cluster,
    run,
)


def with_jobs(scenario: Callable[[VirtualCluster, JobCalls], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(seconds=5)) as cluster:
            await cluster.join()
            await scenario(cluster, JobCalls(cluster))

    run(main)


def test_a_job_is_created_unchanged_and_updated() -> None:
    async def scenario(_cluster: VirtualCluster, jobs: JobCalls) -> None:
        first = await jobs.apply(a_job(cron="0 2 * * *"))
        same = await jobs.apply(a_job(cron="0 2 * * *"))
        other = await jobs.apply(a_job(cron="0 2 * * *", image="other"))

        assert [one.outcome for one in (first, same, other)] == ["created", "unchanged", "updated"]
        assert other.job.spec.template.container.image == "other"
        assert other.job.created_at == first.job.created_at
        assert other.job.type == "container"
        assert first.job.next_run_at.ToJsonString() == "2030-01-01T02:00:00Z"

    with_jobs(scenario)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda job: setattr(job, "job_id", "x" * 41), "job.job_id: invalid job id 'xxx"),
        (lambda job: setattr(job, "completions", -1), "job.completions: invalid completions '-1'"),
        (lambda job: setattr(job, "completions", 10_001), "job.completions: invalid completions"),
        (lambda job: setattr(job, "retries", -1), "job.retries: invalid retries '-1'"),
        (lambda job: setattr(job, "keep", 101), "job.keep: invalid keep '101'"),
        (lambda job: job.fail_on.append(0), "job.fail_on: invalid fail_on '0'"),
        (lambda job: setattr(job.schedule, "cron", "x"), "job.schedule.cron: invalid cron exp"),
        (lambda job: setattr(job.schedule, "timezone", "Mars"), "job.schedule.timezone: invalid"),
        (lambda job: setattr(job.schedule, "overlap", "x"), "job.schedule.overlap: invalid"),
        (
            lambda job: setattr(job.schedule, "start_within_seconds", 5),
            "job.schedule.start_within_seconds: invalid",
        ),
        (
            lambda job: setattr(job.template.container, "image", ""),
            "job.template.container.image: ",
        ),
        (
            lambda job: setattr(job.template.container, "restart_policy", "always"),
            "job.template.container.restart_policy: invalid restart policy",
        ),
    ],
)
def test_an_invalid_job_is_refused_with_the_field(
    change: Callable[[pb.JobSpec], None], reason: str
) -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        spec = a_job(cron="0 2 * * *")
        change(spec)

        answer = await jobs.apply(spec)

        assert not answer.accepted
        assert answer.reason.startswith(reason), answer.reason
        assert cluster.app.cluster.jobs == {}

    with_jobs(scenario)


@pytest.mark.parametrize("field", ["job_id", "template"])
def test_a_missing_field_is_refused_with_a_status(field: str) -> None:
    async def scenario(_cluster: VirtualCluster, jobs: JobCalls) -> None:
        spec = a_job()
        spec.ClearField(field)

        with pytest.raises(AbortedError, match=f"INVALID_ARGUMENT: job.{field}: is missing"):
            await jobs.apply(spec)

    with_jobs(scenario)


def test_a_job_does_not_get_the_id_of_a_workload_or_a_set() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="web"))
        await cluster.call("ApplyWorkload", pb.ApplyWorkloadRequest(workload_id="web", spec=spec))
        fleet = pb.SetSpec(set_id="fleet", template=spec)
        await cluster.call("ApplySet", pb.ApplySetRequest(set=fleet))

        assert "web is a workload: delete it first" in (await jobs.apply(a_job("web"))).reason
        assert "fleet is a set" in (await jobs.apply(a_job("fleet"))).reason
        assert cluster.app.cluster.jobs == {}

    with_jobs(scenario)


def test_a_workload_and_a_set_do_not_get_the_id_of_a_job() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        await jobs.apply(a_job())
        spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="web"))

        workload = pb.ApplyWorkloadRequest(workload_id="backup", spec=spec)
        refused = await cluster.call("ApplyWorkload", workload)
        assert refused.error_message == "backup is a job: delete the job first"
        fleet = pb.SetSpec(set_id="backup", template=spec)
        refused = await cluster.call("ApplySet", pb.ApplySetRequest(set=fleet))
        assert refused.reason == "backup is a job: delete the job first"

    with_jobs(scenario)


@pytest.mark.parametrize("method", ["RunJob", "DeleteJob", "SuspendJob", "CancelRun"])
def test_a_missing_job_is_not_found(method: str) -> None:
    async def scenario(cluster: VirtualCluster, _jobs: JobCalls) -> None:
        requests: dict[str, Any] = {
            "SuspendJob": pb.SuspendJobRequest(job_id="x", suspended=True),
            "CancelRun": pb.CancelRunRequest(job_id="x", run_id="x-1"),
        }

        answer = await cluster.call(method, requests.get(method) or pb.JobRequest(job_id="x"))

        assert (answer.accepted, answer.reason) == (False, "job not found: x")

    with_jobs(scenario)


def test_a_missing_run_is_not_found() -> None:
    async def scenario(_cluster: VirtualCluster, jobs: JobCalls) -> None:
        await jobs.apply(a_job())

        assert (await jobs.cancel("backup-7")).reason == "run not found: backup-7"

    with_jobs(scenario)


def test_a_list_has_the_newest_run_and_a_job_all_of_them_with_members() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        first = await jobs.started(a_job(completions=2, parallelism=2))
        await jobs.until_ended(first)
        second = (await jobs.run()).run_id
        await asyncio.sleep(2)

        (listed,) = (await cluster.call("ListJobs", pb.ListJobsRequest())).jobs
        view = await jobs.get()

        assert [one.run_id for one in listed.runs] == [second]
        assert not listed.runs[0].members
        assert [one.run_id for one in view.runs] == [second, first]
        newest, oldest = view.runs
        assert (newest.state, newest.active_count, newest.succeeded_count) == ("Running", 2, 0)
        assert (oldest.state, oldest.active_count, oldest.succeeded_count) == ("Succeeded", 0, 2)
        assert [(one.workload_id, one.index, one.attempt) for one in oldest.members] == [
            (f"{first}-0", 0, 1),
            (f"{first}-1", 1, 1),
        ]
        assert {(one.status, one.node_id) for one in newest.members} == {("Running", "n1")}

    with_jobs(scenario)


def test_runs_are_counted_by_their_result() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        first = await jobs.started(a_job())
        await jobs.until_ended(first)
        await jobs.cancel((await jobs.run()).run_id)

        def count(result: str) -> float | None:
            name = "persys_scheduler_job_runs_total"
            return cluster.app.metrics.registry.get_sample_value(name, {"result": result})

        assert (count("succeeded"), count("cancelled"), count("failed")) == (1.0, 1.0, 0.0)

    with_jobs(scenario)


def test_a_job_that_is_being_deleted_is_not_changed_and_its_id_is_free_afterwards() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        await jobs.started(a_job())
        await cluster.until(lambda: cluster.running() != [])

        assert (await jobs.delete()).job.deleting
        assert "is being deleted" in (await jobs.apply(a_job())).reason
        await cluster.until(lambda: not cluster.app.cluster.jobs)

        assert (await jobs.apply(a_job())).outcome == "created"

    with_jobs(scenario)


def test_a_secret_that_a_job_uses_is_not_deleted_between_its_runs() -> None:
    async def scenario(cluster: VirtualCluster, jobs: JobCalls) -> None:
        await cluster.call("PutSecret", pb.PutSecretRequest(name="password", value=b"x"))
        spec = a_job()
        spec.template.container.env["PASSWORD"] = "secret://password"
        assert (await jobs.apply(spec)).accepted

        refused = await cluster.call("DeleteSecret", pb.DeleteSecretRequest(name="password"))
        assert "secret password is used by job backup" in refused.reason
        await jobs.delete()
        await cluster.until(lambda: not cluster.app.cluster.jobs)

        deleted = await cluster.call("DeleteSecret", pb.DeleteSecretRequest(name="password"))
        assert deleted.accepted, deleted.reason

    with_jobs(scenario)


def test_a_job_with_a_secret_that_does_not_exist_is_refused() -> None:
    async def scenario(_cluster: VirtualCluster, jobs: JobCalls) -> None:
        spec = a_job()
        spec.template.container.env["PASSWORD"] = "secret://missing"

        assert "missing" in (await jobs.apply(spec)).reason

    with_jobs(scenario)
