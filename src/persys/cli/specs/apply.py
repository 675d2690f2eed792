"""Creates, updates or deletes what spec files contain, and reports what each request changed."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import find_job, split_sets
from persys.cli.commands.wait import Goal
from persys.cli.commands.workload_change import (
    JOB_PREFIX,
    POOL_PREFIX,
    SERVICE_PREFIX,
    Change,
    Changes,
    always,
    find_workload,
    finish,
    request_workloads,
)
from persys.cli.connect.clients import scheduler_client
from persys.cli.specs.spec_files import Specs, print_compose_files
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import InvalidError, NotFoundError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import (
    ApplyWorkloadRequest,
    NodePoolSpec,
    ServiceSpec,
    WorkloadPlan,
    WorkloadView,
)

if TYPE_CHECKING:
    from persys.cli.specs.spec_files import InFile
    from persys.client import SchedulerClient
    from persys.core.intent.field_changes import FieldChange
    from persys.wire.specfile.spec_documents import JobDocument, PoolDocument, ServiceDocument


_DELETED = "being deleted"


def apply_specs(options: Namespace, specs: Specs) -> int:
    """Node pools first, because workloads may wait for their machines."""
    print_compose_files(specs, options, "applied")
    workloads = {spec.id: spec for spec in specs.workloads}
    results: dict[str, str | RequestRefusedError] = {}

    def send(client: "SchedulerClient", workload_id: str) -> str:
        """The first call sends all workloads."""
        if not results:
            requests = [spec.document.request for spec in workloads.values()]
            results.update(zip(workloads, client.apply_all(requests), strict=True))
        result = results[workload_id]
        if isinstance(result, RequestRefusedError):
            raise workloads[workload_id].refusal(result) from result
        return result

    goals = {name: _goal_of(spec.document.request) for name, spec in workloads.items()}
    with scheduler_client(options) as client:
        changes = Changes(client, options)
        for pool in specs.pools:
            changes.request(POOL_PREFIX + pool.id, partial(_apply_pool, client, pool))
        request_workloads(changes, goals, send, _applied)
        if specs.sets:
            from persys.cli.commands.set_change import request_applies  # start-up time

            request_applies(changes, options, specs.sets)
        for job in specs.jobs:
            changes.request(JOB_PREFIX + job.id, partial(_apply_job, client, job))
        for service in specs.services:
            changes.request(SERVICE_PREFIX + service.id, partial(_apply_service, client, service))
        return finish(changes.wait(announce=True), options)


def _apply_pool(client: "SchedulerClient", pool: "InFile[PoolDocument]") -> tuple[Change, None]:
    from persys.cli.specs.changes import changes_of_pool

    before = _find_pool(client, pool.id)
    try:
        after = client.create_node_pool(pool.document.pool).spec
    except RequestRefusedError as err:
        raise pool.refusal(err) from err
    if before is None:
        return Change("created"), None
    fields = changes_of_pool(before, after)
    return Change("updated" if fields else "unchanged", fields), None


def _apply_job(client: "SchedulerClient", job: "InFile[JobDocument]") -> tuple[Change, None]:
    from persys.cli.specs.changes import changes_of_job

    before = find_job(client, job.id)
    try:
        answer = client.apply_job(job.document.request)
    except (InvalidError, RequestRefusedError) as err:
        raise job.refusal(err) from err
    word = answer.outcome or ("created" if before is None else "applied")
    fields = () if before is None else changes_of_job(before.spec, answer.job.spec)
    return Change(word, fields, answer.job), None


def _apply_service(
    client: "SchedulerClient", service: "InFile[ServiceDocument]"
) -> tuple[Change, None]:
    from persys.cli.specs.changes import changes_of_service

    before = _find_service(client, service.id)
    try:
        answer = client.apply_service(service.document.service)
    except (InvalidError, RequestRefusedError) as err:
        raise service.refusal(err) from err
    fields = () if before is None else changes_of_service(before, answer.service.spec)
    return Change(answer.outcome, fields), None


def plan_service(client: "SchedulerClient", service: "InFile[ServiceDocument]") -> WorkloadPlan:
    """What applying a service would change."""
    from persys.cli.specs.changes import changes_of_service
    from persys.wire.control.services import as_stored

    before = _find_service(client, service.id)
    wanted = as_stored(service.document.service)
    fields = () if before is None else changes_of_service(before, wanted)
    return _plan(SERVICE_PREFIX + service.id, exists=before is not None, fields=fields)


def _find_service(client: "SchedulerClient", service_id: str) -> ServiceSpec | None:
    try:
        return client.get_service(service_id).spec
    except NotFoundError:
        return None


def plan_job(client: "SchedulerClient", job: "InFile[JobDocument]") -> WorkloadPlan:
    """What applying a job would change. The scheduler validates it only when it is applied."""
    from persys.cli.specs.changes import changes_of_job

    before = find_job(client, job.id)
    fields = () if before is None else changes_of_job(before.spec, job.document.request.job)
    return _plan(JOB_PREFIX + job.id, exists=before is not None, fields=fields)


def plan_pool(client: "SchedulerClient", pool: "InFile[PoolDocument]") -> WorkloadPlan:
    """What applying a node pool would change. The scheduler validates it only when it is applied."""
    from persys.cli.specs.changes import changes_of_pool

    before = _find_pool(client, pool.id)
    fields = () if before is None else changes_of_pool(before, pool.document.pool)
    return _plan(POOL_PREFIX + pool.id, exists=before is not None, fields=fields)


def _plan(name: str, *, exists: bool, fields: "Sequence[FieldChange]") -> WorkloadPlan:
    plan = WorkloadPlan(workload_id=name, action="create")
    for change in fields:
        plan.changes.add(field=change.field, before=change.before, after=change.after)
    if exists:
        plan.action = "update" if fields else "none"
    return plan


def _find_pool(client: "SchedulerClient", pool_id: str) -> NodePoolSpec | None:
    try:
        return client.get_node_pool(pool_id).spec
    except NotFoundError:
        return None


def delete_specs(options: Namespace, ids: Sequence[str], specs: Specs) -> int:
    """Delete workloads, sets and jobs by id, and everything in the files."""

    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.delete(workload_id)
        return ""

    in_files = [*(one.id for one in specs.workloads), *(one.id for one in specs.sets)]
    with scheduler_client(options) as client:
        sets, others = split_sets(client, [*ids, *in_files])
        jobs = [name for name in ids if name in others and _is_job(client, name)]
        goals = dict.fromkeys((name for name in others if name not in jobs), Goal.GONE)
        changes = Changes(client, options)
        request_workloads(changes, goals, send, always(_DELETED))
        if sets:
            from persys.cli.commands.set_change import request_deletions  # start-up time

            request_deletions(changes, options, sets, _DELETED)
        for name in (*jobs, *(job.id for job in specs.jobs)):
            changes.request(JOB_PREFIX + name, partial(_delete, client.delete_job, name))
        for service in specs.services:
            changes.request(
                SERVICE_PREFIX + service.id, partial(_delete, client.delete_service, service.id)
            )
        for pool in specs.pools:
            changes.request(
                POOL_PREFIX + pool.id, partial(_delete, client.delete_node_pool, pool.id)
            )
        return finish(changes.wait(), options)


def _is_job(client: "SchedulerClient", name: str) -> bool:
    """Whether it is the name of a job and not of a workload."""
    if find_workload(client, name) is not None:
        return False
    return find_job(client, name) is not None


def _delete(send: Callable[[str], object], name: str) -> tuple[Change, None]:
    send(name)
    return Change(_DELETED), None


def _applied(
    client: "SchedulerClient", workload_id: str, before: WorkloadView | None, revision: str
) -> Change:
    if before is None:
        return Change("created")
    try:
        after = find_workload(client, workload_id)
    except UnavailableError:
        after = None  # the request was accepted
    if after is None or not revision:
        return Change("applied")  # an older scheduler does not report the new revision
    same = (before.desired_state, before.spec) == (after.desired_state, after.spec)
    if same:
        return Change("unchanged" if revision == before.revision_id else "updated")
    from persys.cli.specs.changes import changes_of_workload

    return Change("updated", changes_of_workload(before, after))


def _goal_of(request: ApplyWorkloadRequest) -> Goal | None:
    from persys.wire.control.messages import desired, desired_word

    if not request.desired_state:
        return None
    return Goal(desired_word(desired(request.desired_state)))
