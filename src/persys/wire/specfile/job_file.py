"""Jobs in spec files: a workload with `job` or `schedule`, or with `kind: job`.

A restart policy that is not given is `no`. `core/jobs/checks.py` has the limits of all values.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from google.protobuf.message import Message

from persys.core.bounded_yaml import MappingNode, Node, ScalarNode
from persys.errors import InvalidError
from persys.model.job import Overlap
from persys.wire.control.spec_decode import parse_spec
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.strict import text_of
from persys.wire.specfile.value_readers import (
    Reader,
    duration,
    fill_by,
    key_in_file,
    mapping,
    text,
    whole,
    whole_list,
    word,
)

KIND = "job"
_EXIT_CODE_MAX = 255
_ONCE = "no"
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)

JOB: Mapping[str, Reader] = {
    "completions": whole("completions", least=1),
    "parallelism": whole("parallelism", least=1),
    "retries": whole("retries"),
    "deadline": duration("deadline_seconds"),
    "keep": whole("keep", least=1),
    "fail_on": whole_list("fail_on", least=1, most=_EXIT_CODE_MAX),
}
SCHEDULE: Mapping[str, Reader] = {
    "cron": text("cron"),
    "timezone": text("timezone"),
    "overlap": word("overlap", Overlap),
    "start_within": duration("start_within_seconds", least=1),
}


def _schedule(message: Message, node: Node, path: str) -> None:
    """A mapping, or the five fields of cron as one text."""
    assert isinstance(message, control_pb2.JobSpec)
    if isinstance(node, ScalarNode):
        message.schedule.cron = text_of(node, path)
        return
    fill_by(SCHEDULE, message.schedule, node, path)
    if not message.schedule.cron:
        raise InvalidError(f"{path}.cron", 'is missing: expected five fields, as in "0 3 * * *"')


KEYS: Mapping[str, Reader] = {"job": mapping("", JOB), "schedule": _schedule}
# Fields of the contract whose key in a file has another name.
RENAMED: Mapping[str, str] = {
    "job_id": "id",
    "deadline_seconds": "job.deadline",
    **{name: f"job.{name}" for name in JOB if name != "deadline"},
}


def key_of(field: str) -> str:
    return key_in_file(field, RENAMED, KEYS)


def read_job(
    own: MappingNode, workload: control_pb2.ApplyWorkloadRequest
) -> control_pb2.ApplyJobRequest:
    """`own` has the keys of the job, `workload` is made of the others. Raises InvalidError."""
    request = control_pb2.ApplyJobRequest()
    job = request.job
    job.job_id = workload.workload_id
    if not workload.HasField("spec"):
        raise InvalidError("spec", "is empty; expected one of container, compose and vm")
    job.template.CopyFrom(workload.spec)
    fill_by(KEYS, job, own, "")
    match job.template.WhichOneof("workload"):
        case "container" if not job.template.container.restart_policy:
            job.template.container.restart_policy = _ONCE
        case "vm" if not job.template.vm.restart_policy:
            job.template.vm.restart_policy = _ONCE
    _check(job)
    return request


def _check(spec: control_pb2.JobSpec) -> None:
    """Run the checks of the scheduler, so that a file is applied completely or not at all."""
    from persys.core.jobs.checks import check_job  # only for jobs: start-up time
    from persys.wire.control.jobs import job_of
    from persys.wire.control.sets import template_of

    try:
        check_job(job_of(spec, template_of(parse_spec(spec.template))), now=_ANY_TIME)
    except InvalidError as err:
        raise InvalidError(key_of(err.field), err.problem) from None
