"""Creates or updates the workloads and node pools of spec files, and reports what each request changed."""

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from persys.cli.commands.wait import Goal, Outcome
from persys.cli.commands.workload_change import (
    POOL_PREFIX,
    Change,
    always,
    change_workloads,
    find_workload,
    finish,
    refused,
)
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.specs.spec_files import Pool, Specs, print_compose_files
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import NotFoundError, RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import (
    ApplyWorkloadRequest,
    NodePoolSpec,
    WorkloadPlan,
    WorkloadView,
)

if TYPE_CHECKING:
    from persys.client import SchedulerClient


_DELETED = "being deleted"


def apply_specs(options: Namespace, specs: Specs) -> int:
    """Node pools first, because workloads may wait for their machines."""
    print_compose_files(specs, options, "applied")
    workloads = {spec.id: spec for spec in specs.workloads}

    def send(client: "SchedulerClient", workload_id: str) -> str:
        try:
            return client.apply(workloads[workload_id].request)
        except RequestRefusedError as err:
            located = workloads[workload_id].located(str(err))
            raise RequestRefusedError(located, reason=err.reason) from err

    goals = {workload_id: _goal_of(spec.request) for workload_id, spec in workloads.items()}
    with scheduler_client(options) as client:
        outcomes = {POOL_PREFIX + pool.id: _apply_pool(client, pool) for pool in specs.pools}
        outcomes |= change_workloads(client, options, goals, send, _applied, announce=True)
    return finish(outcomes, options)


def _apply_pool(client: "SchedulerClient", pool: Pool) -> Outcome:
    from persys.cli.specs.changes import changes_of_pool

    try:
        before = _find_pool(client, pool.id)
        after = client.create_node_pool(pool.pool).spec
    except RequestRefusedError as err:
        return refused(RequestRefusedError(pool.located(str(err)), reason=err.reason))
    except RefusedError as err:
        return refused(err)
    if before is None:
        return Outcome(ExitCode.OK, "created")
    changes = changes_of_pool(before, after)
    return Outcome(ExitCode.OK, "updated" if changes else "unchanged", changes=changes)


def plan_pool(client: "SchedulerClient", pool: Pool) -> WorkloadPlan:
    """What applying a node pool would change. The scheduler validates it only when it is applied."""
    from persys.cli.specs.changes import changes_of_pool

    plan = WorkloadPlan(workload_id=f"{POOL_PREFIX}{pool.id}", action="create")
    before = _find_pool(client, pool.id)
    if before is None:
        return plan
    for change in changes_of_pool(before, pool.pool):
        plan.changes.add(field=change.field, before=change.before, after=change.after)
    plan.action = "update" if plan.changes else "none"
    return plan


def _find_pool(client: "SchedulerClient", pool_id: str) -> NodePoolSpec | None:
    try:
        return client.get_node_pool(pool_id).spec
    except NotFoundError:
        return None


def delete_specs(options: Namespace, ids: Sequence[str], specs: Specs) -> int:
    """Delete workloads by id, and everything in the files."""

    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.delete(workload_id)
        return ""

    goals = dict.fromkeys([*ids, *(spec.id for spec in specs.workloads)], Goal.GONE)
    with scheduler_client(options) as client:
        outcomes = change_workloads(client, options, goals, send, always(_DELETED))
        for pool in specs.pools:
            outcomes[POOL_PREFIX + pool.id] = _delete_pool(client, pool)
    return finish(outcomes, options)


def _delete_pool(client: "SchedulerClient", pool: Pool) -> Outcome:
    try:
        client.delete_node_pool(pool.id)
    except RefusedError as err:
        return refused(err)
    return Outcome(ExitCode.OK, _DELETED)


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
