"""Which jobs are refused, and with which text."""

from typing import Any

import pytest
from msgspec.structs import replace

from job_builders import NOON, ONCE, a_job, a_run, a_template
from persys.core.jobs.checks import JOB_ID_LENGTH_MAX, RETRIES_MAX, check_job
from persys.core.jobs.members import member_id, requested_run_id
from persys.core.jobs.situation import AttemptKey
from persys.errors import InvalidError
from persys.model.ids import workload_id
from persys.model.job import COMPLETIONS_MAX, Job, JobId, Schedule
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    HealthCheck,
    ManagedVolume,
    RestartPolicy,
    StackNeeds,
    VMSpec,
)


def refusal(job: Job) -> str:
    with pytest.raises(InvalidError) as refused:
        check_job(job, now=NOON)
    return str(refused.value)


def with_spec(spec: object) -> Job:
    return a_job(template=a_template(spec=spec))


def test_the_longest_job_id_gives_valid_workload_ids() -> None:
    job_id = JobId("x" * JOB_ID_LENGTH_MAX)
    run = a_run(requested_run_id(job_id, NOON), completions=COMPLETIONS_MAX)

    last = member_id(run, AttemptKey(COMPLETIONS_MAX - 1, RETRIES_MAX + 1))

    assert workload_id(last) == last


@pytest.mark.parametrize("job_id", ["x" * 41, "Backup", "-a", "a-", "a_b", "a.b"])
def test_an_invalid_id_is_refused(job_id: str) -> None:
    assert "expected 1 to 40 of a-z" in refusal(a_job(job_id=job_id))


def test_a_missing_id_is_refused() -> None:
    assert refusal(a_job(job_id="")) == "job_id: is missing"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"completions": 0}, "completions: invalid completions '0': expected 1 to 10000"),
        ({"completions": 10_001}, "completions: invalid completions '10001'"),
        ({"parallelism": 1001}, "parallelism: invalid parallelism '1001': expected 1 to 1000"),
        ({"retries": -1}, "retries: invalid retries '-1': expected 0 to 100"),
        ({"deadline_seconds": -1}, "deadline_seconds: invalid deadline_seconds '-1'"),
        ({"keep": 101}, "keep: invalid keep '101': expected 1 to 100"),
        ({"fail_on": (0,)}, "fail_on: invalid fail_on '0': expected 1 to 255"),
        ({"fail_on": tuple(range(1, 66))}, "fail_on: 65 exit codes: expected at most 64"),
        (
            {"schedule": Schedule("* * * * *", start_within_seconds=9)},
            "schedule.start_within_seconds: invalid schedule.start_within_seconds '9': expected 10",
        ),
        ({"schedule": Schedule("* * * *")}, "schedule.cron: invalid cron expression '* * * *'"),
    ],
)
def test_an_invalid_value_is_refused_with_what_is_expected(
    changes: dict[str, Any], text: str
) -> None:
    assert refusal(replace(a_job(), **changes)).startswith(text)


@pytest.mark.parametrize(
    "spec",
    [
        ContainerSpec("x"),
        ContainerSpec("x", restart=RestartPolicy("always")),
        VMSpec(1, 512),
    ],
    ids=["container default", "container always", "vm default"],
)
def test_a_template_that_restarts_is_refused(spec: object) -> None:
    assert "of a job: expected no or on-failure" in refusal(with_spec(spec))


@pytest.mark.parametrize(
    "spec",
    [
        ContainerSpec("x", restart=ONCE),
        ContainerSpec("x", restart=RestartPolicy("on-failure", 3)),
        VMSpec(1, 512, restart=ONCE),
        ComposeSpec(yaml="services: {}"),
        ContainerSpec("x", restart=ONCE, managed_volumes=(ManagedVolume("tmp", "/tmp/x"),)),
    ],
)
def test_a_template_that_ends_is_accepted(spec: object) -> None:
    check_job(with_spec(spec), now=NOON)


def test_a_stack_with_a_service_that_restarts_is_refused() -> None:
    stack = ComposeSpec(yaml="services: {}", needs=StackNeeds(restarts="db"))

    assert refusal(with_spec(stack)).startswith(
        "template.compose: invalid restart policy of service 'db' of a job: expected no"
    )


def test_volumes_that_would_stay_for_ever_are_refused() -> None:
    volume = ManagedVolume("data", "/data", retain=True)

    text = refusal(with_spec(ContainerSpec("x", restart=ONCE, managed_volumes=(volume,))))

    assert text.startswith(
        "template.container.managed_volumes: invalid retain of volume 'data' of a job"
    )


def test_a_health_check_that_restarts_is_refused() -> None:
    spec = ContainerSpec("x", restart=ONCE, health=HealthCheck(restart_unhealthy=True))

    assert "only retries of the job" in refusal(with_spec(spec))


def test_stop_after_is_refused() -> None:
    job = a_job(template=replace(a_template(), stop_after_seconds=60))

    assert refusal(job).startswith("template.stop_after: invalid stop_after '60s' of a job")
