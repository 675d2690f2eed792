"""The fields that an apply changes, as lines: added (+), removed (-) or changed (~), with secrets masked.

A spec should reference secrets, but it may contain their values. The value of a variable whose name suggests
a secret is masked, and so is the content of files and of cloud-init.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff

from persys.core.intent.field_changes import FieldChange, changed_fields
from persys.wire.gen.control.v1.control_pb2 import (
    JobSpec,
    NodePoolSpec,
    ServiceSpec,
    SetView,
    WorkloadView,
)
from persys.wire.specfile.export import (
    job_document,
    pool_document,
    service_document,
    set_document,
    workload_document,
)

MASK = "********"
_REFERENCE = "secret://"
_LENGTH_MAX = 80
_SECRET_NAME = re.compile(r"pass|secret|token|credential|private|api_?key|access_?key|auth", re.I)
_IN_MAP = re.compile(r"(?:^|\.)(?:env|metadata|options|labels)(?:\.|\[)(?P<name>.+)")
_SECRET_FIELD = re.compile(r"\.(?:content|password_hash|user_data|cloud_init)$")


def changes_of_workload(before: WorkloadView, after: WorkloadView) -> tuple[FieldChange, ...]:
    return changed_fields(workload_document(before), workload_document(after))


def changes_of_pool(before: NodePoolSpec, after: NodePoolSpec) -> tuple[FieldChange, ...]:
    return changed_fields(pool_document(before), pool_document(after))


def changes_of_service(before: ServiceSpec, after: ServiceSpec) -> tuple[FieldChange, ...]:
    return changed_fields(service_document(before), service_document(after))


def changes_of_set(before: SetView, after: SetView) -> tuple[FieldChange, ...]:
    return changed_fields(set_document(before), set_document(after))


def changes_of_job(before: JobSpec, after: JobSpec) -> tuple[FieldChange, ...]:
    """`after` may be from a file: templates are compared as the scheduler would store them."""
    return changed_fields(job_document(_as_stored(before)), job_document(_as_stored(after)))


def _as_stored(spec: JobSpec) -> JobSpec:
    from persys.wire.control.spec_decode import parse_spec  # start-up time
    from persys.wire.control.spec_encode import spec_message

    stored = JobSpec()
    stored.CopyFrom(spec)
    found = parse_spec(spec.template)
    stored.template.CopyFrom(
        spec_message(
            found.spec,
            found.resources,
            found.metadata,
            rules=found.rules,
            stop_after_seconds=found.stop_after_seconds,
            networks=found.networks,
        )
    )
    return stored


def masked(change: FieldChange) -> FieldChange:
    if not _is_secret(change.field):
        return change
    return FieldChange(change.field, _masked(change.before), _masked(change.after))


def change_lines(changes: Iterable[FieldChange], *, diffs: bool = False) -> Iterator[str]:
    """One line per field. With `diffs` values are complete, and texts of several lines are diffs."""
    shown = [masked(change) for change in changes]
    text = str if diffs else _short
    width = max((len(change.field) for change in shown), default=0)
    for change in shown:
        name, before, after = change.field.ljust(width), change.before, change.after
        if diffs and ("\n" in before or "\n" in after):
            yield f"~ {change.field}:"
            yield from (f"    {line}" for line in _diff(before, after))
        elif not before:
            yield f"+ {name}  {text(after)}"
        elif not after:
            yield f"- {name}  {text(before)}"
        elif "\n" in before or "\n" in after:
            yield f"~ {name}  {_changed_lines(before, after)}"
        else:
            yield f"~ {name}  {text(before)} -> {text(after)}"


def _diff(before: str, after: str) -> list[str]:
    found = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return list(found)[2:]  # the first two lines are the file names


def _changed_lines(before: str, after: str) -> str:
    lines = [line[:1] for line in _diff(before, after)]
    return f"{lines.count('+')} lines added, {lines.count('-')} removed"


def _is_secret(field: str) -> bool:
    in_map = _IN_MAP.search(field)
    if in_map is not None:
        return bool(_SECRET_NAME.search(in_map["name"]))
    return bool(_SECRET_FIELD.search(field))


def _masked(value: str) -> str:
    return value if not value or value.startswith(_REFERENCE) else MASK


def _short(text: str) -> str:
    if "\n" in text:
        return f"{len(text.splitlines())} lines"
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 1] + "…"
