"""For programs: everything of the SDK in one import.

`connect()` uses the variables and the contexts of `persysctl`; for other addresses, create a
`SchedulerClient`. examples/sdk has programs.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from persys.cli.commands.job_wait import RunWait
from persys.cli.commands.set_status import CANARY
from persys.cli.commands.set_wait import SetGoal, SetWait, target_of
from persys.cli.commands.wait import Goal, Outcome, WaitTarget, wait_for, wait_for_all
from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import WAIT_TIMEOUT
from persys.cli.framework.exit_codes import ExitCode
from persys.client import (
    AgentClient,
    AuthorityClient,
    CertificateFiles,
    Gateway,
    RequestRefusedError,
    SchedulerClient,
    Trust,
)
from persys.errors import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    OutOfRangeError,
    PersysError,
    SettingsError,
    UnavailableError,
)
from persys.wire.gen.control.v1 import control_pb2 as messages
from persys.wire.specfile.parser import read_documents, read_spec_file
from persys.wire.specfile.spec_documents import (
    JobDocument,
    PoolDocument,
    ServiceDocument,
    SetDocument,
    SpecDocument,
)

__all__ = [
    "AgentClient",
    "AuthorityClient",
    "CertificateFiles",
    "ConflictError",
    "DeniedError",
    "Gateway",
    "InvalidError",
    "JobDocument",
    "NotFoundError",
    "OutOfRangeError",
    "PersysError",
    "PoolDocument",
    "RequestRefusedError",
    "RolloutResult",
    "RunResult",
    "SchedulerClient",
    "ServiceDocument",
    "SetDocument",
    "SettingsError",
    "SpecDocument",
    "Trust",
    "UnavailableError",
    "WaitResult",
    "apply_and_wait",
    "connect",
    "messages",
    "read_documents",
    "read_spec_file",
    "roll_out",
    "run_job",
]


@contextmanager
def connect(context: str = "") -> Iterator[SchedulerClient]:
    """A client with the settings of `persysctl`: variables, then a context of ~/.persys/config.yaml.

    Without `context` it is the current one. Raises SettingsError for invalid settings.
    """
    options = Namespace(context=context, scheduler="", timeout=None, wait=None)
    with scheduler_client(options, quiet=True) as client:
        yield client


class WaitResult(NamedTuple):
    """Whether the workload runs, its status, and the reason of the status."""

    runs: bool
    status: str
    reason: str


def apply_and_wait(
    client: SchedulerClient,
    requests: Iterable[messages.ApplyWorkloadRequest],
    *,
    within: timedelta = WAIT_TIMEOUT,
) -> dict[str, WaitResult]:
    """Apply workloads and wait as `persysctl apply --wait` does. Returns a result per workload id.

    A workload runs when its health check passes, or when it has run for two seconds without one; a job that
    has completed counts too. The wait for a workload ends early when it fails or fits on no node. Raises the
    first RequestRefusedError; the other workloads are applied nevertheless.
    """
    wanted = list(requests)
    found = [_find(client, request.workload_id) for request in wanted]
    targets: dict[str, WaitTarget] = {}
    for request, before, applied in zip(wanted, found, client.apply_all(wanted), strict=True):
        if isinstance(applied, RequestRefusedError):
            raise applied
        targets[request.workload_id] = WaitTarget(Goal.RUNNING, applied, before)
    outcomes = wait_for(client, targets, within=within, update=lambda _: None)
    return {
        workload_id: WaitResult(outcome.exit is ExitCode.OK, outcome.word, outcome.why)
        for workload_id, outcome in outcomes.items()
    }


class RolloutResult(NamedTuple):
    """Whether the rollout succeeded, its state, and the reason if it was rolled back or paused.

    `waits_for_promotion`: only the canary members are updated, until `client.promote_rollout`.
    """

    succeeded: bool
    state: str
    reason: str
    waits_for_promotion: bool = False


def roll_out(
    client: SchedulerClient,
    requests: Iterable[messages.ApplySetRequest],
    *,
    within: timedelta = WAIT_TIMEOUT,
) -> dict[str, RolloutResult]:
    """Apply sets and wait as `persysctl apply --wait` does. Returns a result per set id.

    The wait for a set ends early when its rollout is rolled back or paused.
    """
    waits: dict[str, SetWait] = {}
    for request in requests:
        view = client.apply_set(request).set
        goal = SetGoal.STOPPED if view.desired_state == Goal.STOPPED.value else SetGoal.ROLLED_OUT
        target = target_of(view, goal)
        waits[view.spec.set_id] = SetWait(view.spec.set_id, target, since_progress=False)
    outcomes = wait_for_all(client, waits, within=within, update=lambda _: None)
    return {
        set_id: RolloutResult(
            _succeeded(outcome), outcome.word, outcome.why, outcome.word == CANARY
        )
        for set_id, outcome in outcomes.items()
    }


class RunResult(NamedTuple):
    """Whether the run succeeded, its id, and the reason if it did not."""

    succeeded: bool
    run_id: str
    reason: str


def run_job(client: SchedulerClient, job_id: str, *, within: timedelta = WAIT_TIMEOUT) -> RunResult:
    """Start a run of a job and wait until it has ended."""
    run_id = client.run_job(job_id).run_id
    waits = {run_id: RunWait(job_id, run_id)}
    outcome = wait_for_all(client, waits, within=within, update=lambda _: None)[run_id]
    return RunResult(_succeeded(outcome), run_id, outcome.why)


def _succeeded(outcome: Outcome) -> bool:
    return outcome.exit is ExitCode.OK


def _find(client: SchedulerClient, workload_id: str) -> messages.WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except NotFoundError:
        return None
