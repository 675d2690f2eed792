"""`persysctl workload apply`, `delete`, `start`, `stop`, `retry` and `redeploy`.

Each sends the requests for all of its workloads, then waits for all of them with --wait. The exit code is the
highest of them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.framework.exit_codes import UsageError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest

if TYPE_CHECKING:
    from persys.wire.specfile.read import SpecDocument
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from persys.cli.commands.wait import Goal, Outcome, Wanted, is_steady, wait_for
from persys.cli.connect.clients import scheduler
from persys.cli.connect.settings import load
from persys.cli.framework.exit_codes import Exit, exit_of
from persys.cli.framework.live import live_view
from persys.cli.framework.output import dump, plain
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


_STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload, and the file it comes from."""

    file: str
    document: "SpecDocument"

    @property
    def request(self) -> ApplyWorkloadRequest:
        return self.document.request

    def located(self, error: str) -> str:
        """Prefix a server's error with `FILE:LINE:` of the field that it names, if it names one."""
        from persys.wire.specfile.document import split_field

        field, problem = split_field(error)
        if not field:
            return error
        line, problem = self.document.placed(field, problem)
        at = f":{line}" if line else ""
        return f"{self.file}{at}: {field}: {problem}"


def read_specs(names: Sequence[str], *, stack_id: str = "") -> list[Spec]:
    """All workloads of all files, in the given order."""
    found: dict[str, Spec] = {}
    for path in _files(names):
        for spec in _read(path, stack_id):
            workload_id = spec.request.workload_id
            if workload_id in found:
                first = found[workload_id].file
                raise UsageError(f"{spec.file}: id: {workload_id!r} is also in {first}")
            found[workload_id] = spec
    if stack_id and stack_id not in found:
        raise UsageError("--id needs a Compose file, and none of the files is one")
    return list(found.values())


def requests_of(specs: Sequence[Spec]) -> list[ApplyWorkloadRequest]:
    return [spec.request for spec in specs]


def _files(names: Sequence[str]) -> Iterator[str]:
    if names.count(_STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    for name in names:
        path = Path(name)
        if name == _STDIN or not path.is_dir():
            yield name
            continue
        inside = sorted(str(each) for each in path.iterdir() if each.suffix in _SUFFIXES)
        if not inside:
            raise UsageError(f"{name} has no {', '.join(_SUFFIXES)} files")
        yield from inside


def _read(name: str, stack_id: str) -> list[Spec]:
    from persys.wire.specfile.read import read_spec_file
    from persys.wire.specfile.strict import SpecFileError

    shown = "standard input" if name == _STDIN else name
    directory = "" if name == _STDIN else Path(name).resolve().parent.name
    try:
        text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
        documents = read_spec_file(text, stack_id=stack_id, directory=directory)
    except OSError as err:
        raise UsageError(f"cannot read {shown}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {shown}: it is not UTF-8 text") from err
    except SpecFileError as err:
        line = f":{err.line}" if err.line else ""
        raise UsageError(f"{shown}{line}: {err}") from err
    return [Spec(shown, document) for document in documents]


Ask = Callable[["SchedulerClient", str], str]
"""Sends the request for one workload and returns the new revision, or "" if it is not known."""

Told = Callable[["SchedulerClient", str, WorkloadView | None, str], str]
"""The word to print for a change: takes the id, the workload before it and the revision after it."""


def apply(options: Namespace) -> int:
    specs = {
        spec.request.workload_id: spec for spec in read_specs(options.file, stack_id=options.id)
    }

    def ask(client: "SchedulerClient", workload_id: str) -> str:
        try:
            return client.apply(specs[workload_id].request)
        except RequestRefusedError as err:
            raise RequestRefusedError(
                specs[workload_id].located(str(err)), reason=err.reason
            ) from err

    goals = {workload_id: _goal_of(spec.request) for workload_id, spec in specs.items()}
    return _change(options, goals, ask, _applied)


def delete(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        client.delete(workload_id)
        return ""

    return _change(options, dict.fromkeys(options.ids, Goal.GONE), ask, _always("being deleted"))


def start(options: Namespace) -> int:
    return _set_desired(options, Goal.RUNNING, "being started")


def stop(options: Namespace) -> int:
    return _set_desired(options, Goal.STOPPED, "being stopped")


def retry(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        client.retry(workload_id)
        return ""

    goals = dict.fromkeys(options.ids, Goal.RUNNING)
    return _change(options, goals, ask, _always("being retried"))


def redeploy(options: Namespace) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        return client.redeploy(workload_id)

    goals = dict.fromkeys(options.ids, Goal.RUNNING)
    return _change(options, goals, ask, _always("being redeployed"))


def _set_desired(options: Namespace, goal: Goal, word: str) -> int:
    def ask(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, goal.value)

    return _change(options, dict.fromkeys(options.ids, goal), ask, _always(word))


def _change(options: Namespace, goals: Mapping[str, Goal | None], ask: Ask, told: Told) -> int:
    """Request the change for each workload. A goal of None keeps the desired state of the workload."""
    outcomes: dict[str, Outcome] = {}
    wanted: dict[str, Wanted] = {}
    quiet = options.output not in (None, "table", "wide")
    with scheduler(options) as client:
        for workload_id, goal in goals.items():
            try:
                before = _look(client, workload_id)
                revision = ask(client, workload_id)
                word = told(client, workload_id, before, revision)
            except RefusedError as err:
                outcomes[workload_id] = _refused(err)
            except UnavailableError:
                _report(outcomes, options.output)  # the requests so far were accepted
                raise
            else:
                outcomes[workload_id] = Outcome(Exit.OK, word)
                wanted[workload_id] = _wanted(goal or _goal_before(before), revision, before)
        if options.wait is not None and wanted:
            within = load(options).wait_timeout
            with live_view(quiet=quiet) as update:
                outcomes |= wait_for(client, wanted, within=within, update=update)
    _report(outcomes, options.output)
    return max(outcome.exit for outcome in outcomes.values())


def _always(word: str) -> Told:
    return lambda _client, _workload_id, _before, _revision: word


def _applied(
    client: "SchedulerClient", workload_id: str, before: WorkloadView | None, revision: str
) -> str:
    if before is None:
        return "created"
    if revision and revision != before.revision_id:
        return "updated"
    after = _look(client, workload_id)
    if after is None or not revision:
        return "applied"  # the scheduler does not report the new revision
    same = (before.desired_state, before.spec) == (after.desired_state, after.spec)
    return "unchanged" if same else "updated"


def _goal_before(before: WorkloadView | None) -> Goal:
    """The goal of a request without a desired state."""
    stopped = before is not None and before.desired_state == Goal.STOPPED.value
    return Goal.STOPPED if stopped else Goal.RUNNING


def _look(client: "SchedulerClient", workload_id: str) -> WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except RefusedError:
        return None  # an invalid id is reported by the request itself


def _wanted(goal: Goal, revision: str, before: WorkloadView | None) -> Wanted:
    if before is not None and revision == before.revision_id and goal.value == before.desired_state:
        # The request changes nothing, so the state before it counts.
        return Wanted(goal, revision, was_steady=is_steady(before))
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
            why = outcome.why and f": {outcome.why}"
            print(f"error: {workload_id}: {outcome.word}{why}", file=sys.stderr)
            if outcome.hint:
                print(f"next: {outcome.hint}", file=sys.stderr)
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
        "next": outcome.hint,
    }
    if outcome.workload is not None:
        found["workload"] = plain(outcome.workload)
    return found


def _goal_of(request: ApplyWorkloadRequest) -> Goal | None:
    from persys.wire.control.messages import desired, desired_word

    if not request.desired_state:
        return None
    return Goal(desired_word(desired(request.desired_state)))
