"""Requests changes of sets: apply, start, stop, restart, delete, scale and the commands of a rollout."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import find_set
from persys.cli.commands.set_wait import SetGoal, SetWait, target_of
from persys.cli.commands.wait import Goal, Wait
from persys.cli.commands.workload_change import Change, Changes, finish
from persys.cli.connect.clients import scheduler_client
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import InvalidError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import ApplySetRequest, SetView

if TYPE_CHECKING:
    from persys.cli.specs.spec_files import InFile
    from persys.client import SchedulerClient
    from persys.wire.specfile.spec_documents import SetDocument

SendToSet = Callable[["SchedulerClient", str], SetView]
"""Sends the request for one set."""


def request_sets(
    changes: Changes,
    options: Namespace,
    ids: Iterable[str],
    send: SendToSet,
    word: str,
    goal: SetGoal,
) -> None:
    def request(set_id: str) -> tuple[Change, Wait]:
        view = send(changes.client, set_id)
        return Change(word, view=view), set_wait(options, view, set_id, goal)

    for set_id in ids:
        changes.request(set_id, partial(request, set_id))


def change_set(
    options: Namespace, send: SendToSet, word: str, goal: SetGoal = SetGoal.ROLLED_OUT
) -> int:
    """One request of a command for one set, `options.id`."""
    with scheduler_client(options) as client:
        changes = Changes(client, options)
        request_sets(changes, options, [options.id], send, word, goal)
        return finish(changes.wait(), options)


def set_wait(options: Namespace, view: SetView, set_id: str, goal: SetGoal) -> SetWait:
    is_limited = bool(options.wait) or options.timeout is not None
    return SetWait(set_id, target_of(view, goal), since_progress=not is_limited)


def request_desired(
    changes: Changes, options: Namespace, ids: Iterable[str], goal: Goal, word: str
) -> None:
    """Start or stop all members of each set."""

    def send(client: "SchedulerClient", set_id: str) -> SetView:
        return client.set_desired_state_of_set(set_id, goal.value)

    reached = SetGoal.STOPPED if goal is Goal.STOPPED else SetGoal.ROLLED_OUT
    request_sets(changes, options, ids, send, word, reached)


def request_deletions(changes: Changes, options: Namespace, ids: Iterable[str], word: str) -> None:
    def send(client: "SchedulerClient", set_id: str) -> SetView:
        return client.delete_set(set_id)

    request_sets(changes, options, ids, send, word, SetGoal.GONE)


def request_restarts(
    changes: Changes, options: Namespace, sets: Mapping[str, SetView], word: str
) -> None:
    """Replace the members of each set as an update does: never all at once."""
    from persys.model.sets import RESTARTED_AT  # start-up time

    now = SystemClock().now().isoformat(timespec="seconds")

    def send(client: "SchedulerClient", set_id: str) -> SetView:
        request = ApplySetRequest(set=sets[set_id].spec, desired_state="Running")
        request.set.ClearField("replicas")
        request.set.template.metadata[RESTARTED_AT] = now
        return client.apply_set(request).set

    request_sets(changes, options, sets, send, word, SetGoal.ROLLED_OUT)


def request_applies(
    changes: Changes, options: Namespace, sets: "Iterable[InFile[SetDocument]]"
) -> None:
    for spec in sets:
        changes.request(spec.id, partial(_apply, changes.client, options, spec))


def _apply(
    client: "SchedulerClient", options: Namespace, spec: "InFile[SetDocument]"
) -> tuple[Change, Wait]:
    from persys.cli.specs.changes import changes_of_set

    before = find_set(client, spec.id)
    try:
        answer = client.apply_set(with_restart(spec.document.request, before))
    except (InvalidError, RequestRefusedError) as err:
        raise spec.refusal(err) from err
    word = answer.outcome or ("created" if before is None else "applied")
    fields = () if before is None else changes_of_set(before, answer.set)
    stopped = answer.set.desired_state == "Stopped"
    goal = SetGoal.STOPPED if stopped else SetGoal.ROLLED_OUT
    return Change(word, fields, answer.set), set_wait(options, answer.set, spec.id, goal)


def with_restart(request: ApplySetRequest, before: SetView | None) -> ApplySetRequest:
    """The request with the time of the last restart: a file that does not have it is not a change."""
    from persys.model.sets import RESTARTED_AT  # start-up time

    restarted_at = "" if before is None else before.spec.template.metadata.get(RESTARTED_AT, "")
    if not restarted_at or not request.set.HasField("template"):
        return request
    if RESTARTED_AT in request.set.template.metadata:
        return request
    found = ApplySetRequest()
    found.CopyFrom(request)
    found.set.template.metadata[RESTARTED_AT] = restarted_at
    return found
