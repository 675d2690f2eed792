"""For programs: everything of the SDK in one import.

`connect()` uses the variables and the contexts of `persysctl`; for other addresses, create a
`SchedulerClient`. examples/sdk has programs.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from persys.cli.commands.wait import Goal, WaitTarget, wait_for
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
from persys.wire.specfile.parser import read_spec_file

__all__ = [
    "AgentClient",
    "AuthorityClient",
    "CertificateFiles",
    "ConflictError",
    "DeniedError",
    "Gateway",
    "InvalidError",
    "NotFoundError",
    "OutOfRangeError",
    "PersysError",
    "RequestRefusedError",
    "SchedulerClient",
    "SettingsError",
    "Trust",
    "UnavailableError",
    "WaitResult",
    "apply_and_wait",
    "connect",
    "messages",
    "read_spec_file",
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
    has completed counts too. The wait for a workload ends early when it fails or fits on no node.
    """
    targets: dict[str, WaitTarget] = {}
    for request in requests:
        before = _find(client, request.workload_id)
        revision = client.apply(request)
        targets[request.workload_id] = WaitTarget(Goal.RUNNING, revision, before)
    outcomes = wait_for(client, targets, within=within, update=lambda _: None)
    return {
        workload_id: WaitResult(outcome.exit is ExitCode.OK, outcome.word, outcome.why)
        for workload_id, outcome in outcomes.items()
    }


def _find(client: SchedulerClient, workload_id: str) -> messages.WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except NotFoundError:
        return None
