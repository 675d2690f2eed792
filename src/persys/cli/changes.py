"""Commands that change workloads: apply, delete, start, stop, retry, redeploy.

Each asks for all of its workloads, then waits for all if told to. The exit code is the worst of them.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from persys.cli.exits import Exit, exit_of
from persys.cli.live import live_view
from persys.cli.output import dump, plain
from persys.cli.peers import scheduler
from persys.cli.settings import load
from persys.cli.specs import read_specs
from persys.cli.verdict import Goal, Wanted
from persys.cli.waiting import Outcome, wait_for
from persys.client.call import RequestRefusedError
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest, WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

Ask = Callable[["SchedulerClient", str], str]
"""Asks for the change of one workload and returns its revision, if that is known."""


def apply(options: Namespace) -> int:
    requests = {request.workload_id: request for request in read_specs(options.file)}
    goals = {workload_id: _goal_of(request) for workload_id, request in requests.items()}
    return _change(
        options, goals, lambda client, workload_id: client.apply(requests[workload_id]), "applied"
    )


def delete(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        client.delete(workload_id)
        return ""

    return _change(options, dict.fromkeys(options.ids, Goal.GONE), ask, "being deleted")


def start(options: Namespace) -> int:
    return _set_desired(options, Goal.RUNNING, "being started")


def stop(options: Namespace) -> int:
    return _set_desired(options, Goal.STOPPED, "being stopped")


def retry(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        client.retry(workload_id)
        return ""

    return _change(options, dict.fromkeys(options.ids, Goal.RUNNING), ask, "being tried again")


def redeploy(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        return client.redeploy(workload_id)

    return _change(options, dict.fromkeys(options.ids, Goal.RUNNING), ask, "being deployed again")


def _set_desired(options: Namespace, goal: Goal, word: str) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, goal.value)

    return _change(options, dict.fromkeys(options.ids, goal), ask, word)


def _change(options: Namespace, goals: Mapping[str, Goal], ask: Ask, word: str) -> int:
    outcomes: dict[str, Outcome] = {}
    wanted: dict[str, Wanted] = {}
    quiet = options.output not in (None, "table", "wide")
    with scheduler(options) as client:
        for workload_id, goal in goals.items():
            try:
                before = _look(client, workload_id) if options.wait is not None else None
                revision = ask(client, workload_id)
            except RefusedError as err:
                outcomes[workload_id] = _refused(err)
            except UnavailableError:
                _report(outcomes, options.output)  # what was asked for so far has been taken
                raise
            else:
                outcomes[workload_id] = Outcome(Exit.OK, word)
                wanted[workload_id] = _wanted(goal, revision, before)
        if options.wait is not None and wanted:
            within = load(options).wait_timeout
            with live_view(quiet=quiet) as update:
                outcomes |= wait_for(client, wanted, within=within, update=update)
    _report(outcomes, options.output)
    return max(outcome.exit for outcome in outcomes.values())


def _look(client: "SchedulerClient", workload_id: str) -> WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except RefusedError:
        return None  # what is wrong with the id, the request itself will be told


def _wanted(goal: Goal, revision: str, before: WorkloadView | None) -> Wanted:
    if before is not None and revision == before.revision_id and goal.value == before.desired_state:
        return Wanted(goal, revision)  # nothing changed, so how it looked before still holds
    return Wanted(goal, revision, before)


def _refused(err: RefusedError) -> Outcome:
    bad_spec = isinstance(err, RequestRefusedError) and err.reason == "INVALID_SPEC"
    return Outcome(Exit.USAGE if bad_spec else exit_of(err), "refused", str(err))


def _report(outcomes: Mapping[str, Outcome], form: str | None) -> None:
    if form in ("json", "yaml"):
        print(dump([_plain(*item) for item in outcomes.items()], form))
        return
    for workload_id, outcome in outcomes.items():
        if outcome.exit is not Exit.OK:
            print(f"error: {workload_id}: {outcome.word}: {outcome.why}", file=sys.stderr)
        elif form == "name":
            print(workload_id)
        else:
            print(f"{workload_id}: {outcome.word}{outcome.why and f' ({outcome.why})'}")


def _plain(workload_id: str, outcome: Outcome) -> dict[str, object]:
    found: dict[str, object] = {
        "workload_id": workload_id,
        "success": outcome.exit is Exit.OK,
        "outcome": outcome.word,
        "reason": outcome.why,
    }
    if outcome.workload is not None:
        found["workload"] = plain(outcome.workload)
    return found


def _goal_of(request: ApplyWorkloadRequest) -> Goal:
    from persys.wire.control import desired, desired_word

    return Goal(desired_word(desired(request.desired_state or Goal.RUNNING.value)))
