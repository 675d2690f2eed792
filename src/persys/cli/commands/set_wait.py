"""`--wait` for sets: a rollout, a new number of members, a stop or a deletion.

A rollout always ends or pauses with a reason. The wait ends at once when it is rolled back or paused, and
when only a person can continue it after its canary members. Without a duration the time limit counts from the
last progress, because a rollout of many members takes long.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.commands.set_status import (
    CANARY,
    DELETING,
    PAUSED,
    ROLLING_BACK,
    STEADY,
    counts_text,
    live_states,
    members_in_progress,
    next_command,
)
from persys.cli.commands.wait import (
    SUPERSEDED_MAX,
    Goal,
    Outcome,
    WaitState,
    WaitTarget,
    WorkloadWait,
    no_response,
)
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import LiveState
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_PROBED_MEMBERS_MAX = 20
_NOT_PROBED = frozenset({"lost", "deleting"})
_CODES = {WaitState.REACHED: ExitCode.OK, WaitState.FAILED: ExitCode.FAILED}


class SetGoal(Enum):
    ROLLED_OUT = "rolled out"
    SCALED = "scaled"
    STOPPED = "Stopped"
    GONE = "Deleted"


_OF_RUNNING_MEMBERS = (SetGoal.ROLLED_OUT, SetGoal.SCALED)


class SetTarget(NamedTuple):
    """The goal, and the revision and the number of members after the request (None: not known)."""

    goal: SetGoal
    revision: int | None = None
    members: int | None = None


def target_of(view: SetView, goal: SetGoal) -> SetTarget:
    """The target of a request that was answered with this view."""
    return SetTarget(goal, view.target_revision, view.member_count_wanted)


class Verdict(NamedTuple):
    state: WaitState
    why: str = ""
    hint: str = ""


class SetWait:
    """One set of a wait, with the time of its last progress."""

    def __init__(self, set_id: str, target: SetTarget, *, since_progress: bool) -> None:
        self._id = set_id
        self._target = target
        self._since_progress = since_progress
        self._signature: object = None
        self._progressed = timedelta()
        self._has_started = False  # its rollout was seen at the requested revision
        self._members: dict[str, WorkloadWait] = {}
        self._states: dict[str, LiveState] = {}

    def probe(self, client: "SchedulerClient", passed: timedelta) -> Outcome:
        try:
            view = client.get_set(self._id)
            failed = self._probe_members(client, view, passed)
        except NotFoundError:
            if self._target.goal is SetGoal.GONE:
                return Outcome(ExitCode.OK, SetGoal.GONE.value)
            why, hint = "it was deleted after this request", "list sets with `persysctl set list`"
            return Outcome(ExitCode.FAILED, SetGoal.GONE.value, why, hint)
        except UnavailableError as err:
            return no_response(err)
        self._note_progress(view, passed)
        verdict = evaluate_set(
            view,
            self._target,
            may_be_stale=passed < SUPERSEDED_MAX,
            has_started=self._has_started,
        )
        if verdict.state is WaitState.OPEN and failed is not None:
            verdict = failed
        code = _CODES.get(verdict.state, ExitCode.TIMED_OUT)
        if verdict.state is WaitState.REACHED:
            word, why = _reached(view, self._target)
            return Outcome(code, word, why, view=view, after=after_success(view))
        hint = verdict.hint or f"show its members with `persysctl rollout status {self._id}`"
        return Outcome(code, view.phase, verdict.why or counts_text(view), hint, view=view)

    def _note_progress(self, view: SetView, passed: timedelta) -> None:
        signature = _signature(view)
        if signature != self._signature:
            self._signature, self._progressed = signature, passed
        if self._target.revision in (None, view.target_revision):
            self._has_started = True

    def states(self, outcome: Outcome) -> Mapping[str, LiveState]:
        return self._states or {self._id: LiveState(outcome.word, outcome.why)}

    def ends_after(self, within: timedelta) -> timedelta:
        return self._progressed + within if self._since_progress else within

    def _probe_members(
        self, client: "SchedulerClient", view: SetView, passed: timedelta
    ) -> Verdict | None:
        """Look at the members in progress, for the live view. Returns why one failed outside a rollout."""
        now = SystemClock().now()
        failed: Verdict | None = None
        steps: dict[str, LiveState] = {}
        moving = [
            member.workload_id
            for member in members_in_progress(view, now)
            if self._target.goal in _OF_RUNNING_MEMBERS and member.health not in _NOT_PROBED
        ]
        for name in moving[:_PROBED_MEMBERS_MAX]:
            wait = self._members.setdefault(name, _member_wait(name))
            outcome = wait.probe(client, passed)
            steps |= wait.states(outcome)
            if outcome.exit is ExitCode.FAILED and outcome.workload is not None:
                failed = failed or Verdict(
                    WaitState.FAILED, f"{name}: {outcome.word}: {outcome.why}", outcome.hint
                )
        self._states = live_states(view, steps, now)
        # During a rollout its gates decide.
        return failed if self._target.goal is SetGoal.SCALED or view.phase == STEADY else None


def _member_wait(workload_id: str) -> WorkloadWait:
    return WorkloadWait(workload_id, WaitTarget(Goal.RUNNING), within=timedelta(minutes=1))


def _signature(view: SetView) -> tuple[object, ...]:
    """What changes when a rollout makes progress."""
    members = [(member.workload_id, member.revision, member.health) for member in view.members]
    return view.phase, view.target_revision, view.member_count_wanted, tuple(members)


def _reached(view: SetView, target: SetTarget) -> tuple[str, str]:
    if target.goal is SetGoal.STOPPED:
        return target.goal.value, ""
    word = target.goal.value
    if view.phase == CANARY and target.goal is SetGoal.ROLLED_OUT:
        word = CANARY
    return word, f"revision {view.target_revision}, {counts_text(view)}"


def after_success(view: SetView) -> str:
    name = view.spec.set_id
    if view.phase == CANARY:
        return next_command(view)
    if view.desired_state == "Stopped":
        return f"start it again with `persysctl start {name}`"
    return f"show its members with `persysctl set get {name}`, their output with `persysctl logs {name}`"


def evaluate_set(
    view: SetView, target: SetTarget, *, may_be_stale: bool, has_started: bool
) -> Verdict:
    """`may_be_stale`: a scheduler on standby may answer with the state before the request.

    `has_started`: the set was seen with the requested revision as its target.
    """
    if target.goal is SetGoal.GONE:
        again = view.phase != DELETING and not may_be_stale
        return (
            Verdict(WaitState.FAILED, "it was applied again after this request") if again else _OPEN
        )
    if view.phase == DELETING:
        return Verdict(WaitState.FAILED, "it is being deleted")
    wanted = Goal.STOPPED if target.goal is SetGoal.STOPPED else Goal.RUNNING
    if view.desired_state != wanted.value:
        return _superseded(f"its desired state is {view.desired_state}", may_be_stale=may_be_stale)
    if target.goal is SetGoal.STOPPED:
        return _REACHED if all(one.health == "stopped" for one in view.members) else _OPEN
    if target.members not in (None, view.member_count_wanted):
        if may_be_stale:
            return _OPEN
        if target.goal is SetGoal.SCALED:
            why = f"it was scaled to {view.member_count_wanted} after this request"
            return Verdict(WaitState.FAILED, why)
    if target.goal is SetGoal.SCALED:
        return _REACHED if _is_complete(view) else _OPEN
    return _evaluate_rollout(view, target, may_be_stale=may_be_stale, has_started=has_started)


def _evaluate_rollout(
    view: SetView, target: SetTarget, *, may_be_stale: bool, has_started: bool
) -> Verdict:
    now = view.target_revision
    reason = view.reason and f": {view.reason}"
    # A wait that began during a rollback waits for its end.
    is_undone = view.phase == ROLLING_BACK and now != target.revision
    if is_undone and (has_started or not may_be_stale):
        why = f"it is rolled back to revision {now}{reason}"
        return Verdict(WaitState.FAILED, why, next_command(view))
    if target.revision not in (None, now):
        undone = f"revision {target.revision} was rolled back to revision {now}{reason}"
        later = f"revision {now} was applied after this request"
        is_rolled_back = now == view.stable_revision
        hint = f"show what happened with `persysctl events --workload {view.spec.set_id}`"
        return _superseded(
            undone if is_rolled_back else later, may_be_stale=may_be_stale, hint=hint
        )
    if view.phase == PAUSED:
        return Verdict(WaitState.FAILED, view.reason or "it is paused", next_command(view))
    if view.phase == CANARY and not view.spec.update.bake_seconds:
        return _REACHED
    return _REACHED if view.phase == STEADY and _is_complete(view) else _OPEN


def _superseded(why: str, *, may_be_stale: bool, hint: str = "") -> Verdict:
    return _OPEN if may_be_stale else Verdict(WaitState.FAILED, why, hint)


def _is_complete(view: SetView) -> bool:
    """Members on lost nodes count: failover replaces them, or their data is bound to the node."""
    lost = sum(member.health == "lost" for member in view.members)
    wanted = view.member_count_wanted
    return view.member_count == wanted and view.healthy_count + lost >= wanted


_OPEN = Verdict(WaitState.OPEN)
_REACHED = Verdict(WaitState.REACHED)
