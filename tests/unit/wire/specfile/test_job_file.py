"""Jobs in spec files: keys, both forms of a schedule, and the position of every error."""

import pytest

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.parser import read_documents
from persys.wire.specfile.spec_documents import JobDocument
from persys.wire.specfile.strict import SpecFileError

BACKUP = "id: backup\ncontainer:\n  image: backup\n"


def document(text: str) -> JobDocument:
    (found,) = read_documents(text)
    assert isinstance(found, JobDocument)
    return found


def one(text: str) -> control_pb2.JobSpec:
    return document(text).request.job


def refusal(text: str) -> str:
    with pytest.raises(SpecFileError) as error:
        read_documents(text)
    return f"{error.value.at.line}:{error.value.at.column}: {error.value}"


@pytest.mark.parametrize("key", ["job: {}", "schedule: 0 3 * * *", "kind: job"])
def test_a_workload_with_a_key_of_a_job_is_a_job(key: str) -> None:
    spec = one(f"{BACKUP}{key}\n")

    assert spec.job_id == "backup"
    assert spec.template.container.image == "backup"


def test_every_key_of_a_job_is_read() -> None:
    spec = one(
        f"{BACKUP}"
        "job: {completions: 4, parallelism: 2, retries: 3, deadline: 1h, keep: 5, fail_on: [2, 64]}\n"
        "schedule: {cron: 0 3 * * *, timezone: Europe/Berlin, overlap: replace, start_within: 30m}\n"
    )
    spec.ClearField("template")

    assert spec == control_pb2.JobSpec(
        job_id="backup",
        completions=4,
        parallelism=2,
        retries=3,
        deadline_seconds=3600,
        keep=5,
        fail_on=[2, 64],
        schedule=control_pb2.JobSchedule(
            cron="0 3 * * *", timezone="Europe/Berlin", overlap="replace", start_within_seconds=1800
        ),
    )


def test_a_schedule_may_be_only_the_text_of_cron() -> None:
    spec = one(f'{BACKUP}schedule: "*/5 * * * *"\n')

    assert spec.schedule == control_pb2.JobSchedule(cron="*/5 * * * *")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job: {completions: 0}", "4:20: job.completions: is 0; expected 1 or more"),
        ("job: {retries: 101}", "4:16: job.retries: invalid retries '101': expected 0 to 100"),
        (
            "job: {deadline: 400d}",
            "4:17: job.deadline: invalid deadline_seconds '34560000': expected",
        ),
        ("schedule: 0 25 * * *", "4:1: schedule.cron: invalid cron expression '0 25 * * *'"),
        (
            "schedule: {cron: 0 3 * * *, timezone: Berlin}",
            "4:39: schedule.timezone: invalid time zone 'Berlin'",
        ),
        ("job: {completion: 2}", "4:7: job.completion: unknown key; did you mean completions?"),
        ("job: {fail_on: 3}", "4:16: job.fail_on: expected a list, got the number 3"),
        ("job: {fail_on: [1, 256]}", "4:20: job.fail_on[1]: is 256; expected 1 to 255"),
        ("job: {deadline: later}", "4:17: job.deadline: 'later': expected a duration"),
        ("schedule: {timezone: UTC}", "4:1: schedule.cron: is missing: expected five fields"),
        ("schedule: 5", "4:11: schedule: expected text, got the number 5"),
        (
            "schedule: {cron: 0 3 * * *, overlap: queue}",
            "4:38: schedule.overlap: invalid value 'queue': expected forbid, allow or replace",
        ),
        ("job: {}\nreplicas: 2", "5:1: replicas: is a key of a set; the document is a job"),
        ("kind: job\ndesired_state: Stopped", "5:16: desired_state: is not used by a job"),
    ],
)
def test_an_error_has_its_line_and_column(text: str, expected: str) -> None:
    assert refusal(f"{BACKUP}{text}\n").startswith(expected)


def test_a_job_needs_a_template() -> None:
    assert "spec: is empty; expected one of container, compose and vm" in refusal(
        "kind: job\nid: backup\n"
    )


@pytest.mark.parametrize(
    ("field", "line", "shown"),
    [
        ("job.template.container.image", 3, "container.image"),
        ("job.deadline_seconds", 4, "job.deadline"),
        ("job.retries", 4, "job.retries"),
        ("job.schedule.cron", 5, "schedule.cron"),
        ("job.schedule.start_within_seconds", 5, "schedule.start_within"),
        ("job.job_id", 1, "id"),
    ],
)
def test_a_field_of_the_scheduler_is_found_in_the_file(field: str, line: int, shown: str) -> None:
    found = document(f"{BACKUP}job: {{retries: 1}}\nschedule: 0 3 * * *\n")

    at, name, _ = found.located(field, "is wrong")

    assert (at.line, name) == (line, shown)


def test_a_job_and_a_workload_cannot_have_one_id() -> None:
    assert "'backup' is used twice" in refusal(f"{BACKUP}---\n{BACKUP}kind: job\n")


def test_members_of_a_job_run_once_unless_the_file_says_otherwise() -> None:
    default = one(f"{BACKUP}kind: job\n")
    retried = one(f"{BACKUP}  restart_policy: on-failure:3\nkind: job\n")
    machine = one("id: build\nkind: job\nvm: {vcpus: 1, memory_mb: 256}\n")

    assert default.template.container.restart_policy == "no"
    assert retried.template.container.restart_policy == "on-failure:3"
    assert machine.template.vm.restart_policy == "no"
    assert refusal(f"{BACKUP}  restart_policy: always\nkind: job\n").startswith(
        "4:19: container.restart_policy: invalid restart policy 'always' of a job"
    )
