"""Every command with --wait, against every condition that can keep it from its goal.

The commands come from the parser's own table, so that a new one is tried without a new test. Each ends with
an exit code that is not 0, a reason and a next command that persysctl understands.
"""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from persys.cli.commands.wait import (
    SUPERSEDED_MAX,
    UNREACHABLE_MAX,
    Goal,
    WaitState,
    WaitTarget,
    evaluate,
)
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.parser import parse
from persys.cli.framework.tables.command import Command
from persys.wire.gen.control.v1.control_pb2 import (
    DrainBlock,
    ReasonDetail,
    WorkloadPlan,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shells.cli.conftest import Cluster, Run

WEB = "id: web\ncontainer: {image: nginx}\nrevision_id: r2\ndesired_state: Running\n"


def waits(command: Command) -> bool:
    return any("--wait" in argument.names for argument in command.arguments)


WAITING = sorted(
    [f"{group.name} {each.name}" for group in GROUPS for each in group.commands if waits(each)]
    + [each.name for each in SINGLES if waits(each)]
)
ON_NODES = {"node drain"}
# Tested in test_set.py and test_job.py.
ON_SETS = {
    "set delete",
    "scale",
    *(f"rollout {verb}" for verb in ("status", "resume", "promote", "undo")),
}
ON_JOBS = {"job run"}
OPERANDS = {
    "apply": ("-f", "-"),
    "workload apply": ("-f", "-"),
    "run": ("web", "--image", "nginx"),
    "edit": ("web", "--yes"),
}
EDITOR = {"VISUAL": "", "EDITOR": "sed -i s/nginx/nginx:2/"}
ON_WORKLOADS = [name for name in WAITING if name not in ON_NODES | ON_SETS | ON_JOBS]


def is_in(status: str, code: str, message: str, failure: str = "") -> Callable[..., None]:
    def become(_cluster: Cluster, view: WorkloadView) -> None:
        view.status, view.failure_reason, view.assigned_node_id = status, failure, "n1"
        view.reason.CopyFrom(ReasonDetail(code=code, message=message))

    return become


def is_deleted(cluster: Cluster, view: WorkloadView) -> None:
    del cluster.workloads[view.workload_id]


def is_replaced(_cluster: Cluster, view: WorkloadView) -> None:
    view.revision_id = "r9"


def reverse_desired_state(_cluster: Cluster, view: WorkloadView) -> None:
    other = {"Running": "Stopped", "Stopped": "Running"}
    view.desired_state = view.status = other[view.desired_state]


def loses_the_scheduler(cluster: Cluster, _view: WorkloadView) -> None:
    cluster.away = True


CONDITIONS: dict[str, Callable[[Cluster, WorkloadView], None]] = {
    "crash loop": is_in("Failed", "CrashLoop", "restarted 3 times", "RUNTIME_ERROR"),
    "failed health check": is_in("Running", "Unhealthy", "status 500"),
    "unplaceable": is_in("Pending", "Unplaceable", "short of memory", "INSUFFICIENT_RESOURCES"),
    "image missing": is_in("Failed", "", "no such image", "IMAGE_NOT_FOUND"),
    "node lost": is_in("Unknown", "NodeNotReady", "node n1 is not sending heartbeats"),
    "node silent": is_in("Pending", "NodeUnreachable", "node n1 does not respond"),
    "changed by hand": is_in("Running", "Drifted", "network bridge is not attached"),
    "deleted by another": is_deleted,
    "replaced by another": is_replaced,
    "stopped or started by another": reverse_desired_state,
    "scheduler away": loses_the_scheduler,
}
# Conditions that do not prevent the desired state.
HARMLESS = {
    ("workload delete", "deleted by another"),
    ("workload retry", "replaced by another"),  # whichever revision there is, it is tried again
}


def next_commands(err: str) -> list[str]:
    (line,) = [line for line in err.splitlines() if line.startswith("next: ")]
    return re.findall(r"`(persysctl [^`]+)`", line)


def is_understood(command: str) -> bool:
    parse(shlex.split(command)[1:])  # ends the test with SystemExit if it is not
    return True


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", ON_WORKLOADS)
def test_every_wait_ends_with_a_code_a_reason_and_a_next_command(
    name: str, condition: str, cluster: Cluster, ctl: Run
) -> None:
    if (name, condition) in HARMLESS:
        return
    desired = "Stopped" if name == "workload start" else "Running"
    if name != "run":  # it creates the workload
        view = cluster.add_workload("web", desired, desired_state=desired)
        view.spec.container.image = "nginx"
    cluster.plans = [WorkloadPlan(workload_id="web", action="update")]
    cluster.looks_before_gone = 1_000
    cluster.after_change = lambda view: CONDITIONS[condition](cluster, view)

    result = ctl(
        *name.split(), *OPERANDS.get(name, ("web",)), "--wait", "100ms", stdin=WEB, **EDITOR
    )

    assert result.code in (1, 3, 4)
    assert re.search(r"^error: web: \w+.*: \S", result.err), result.err
    commands = next_commands(result.err)
    assert all(is_understood(command) for command in commands)
    assert commands


def blocked(cluster: Cluster) -> None:
    drain = cluster.nodes["n1"].drain
    drain.blocked.append(DrainBlock(workload_id="db", reason="its data is here", stays=True))


def drain_slowly(cluster: Cluster) -> None:
    drain = cluster.nodes["n1"].drain
    drain.blocked.append(DrainBlock(workload_id="db", reason="about to move to n2"))


def late(cluster: Cluster) -> None:
    cluster.nodes["n1"].drain.state = "overdue"


def end_drain(cluster: Cluster) -> None:
    cluster.nodes["n1"].drain.state = ""


def removed(cluster: Cluster) -> None:
    del cluster.nodes["n1"]


def away(cluster: Cluster) -> None:
    cluster.away = True


@pytest.mark.parametrize(
    ("happens", "code", "reason"),
    [
        (blocked, 3, "db: its data is here"),
        (drain_slowly, 3, "not empty after 100ms"),
        (late, 1, "not empty at its deadline"),
        (end_drain, 1, "it is schedulable again"),
        (removed, 1, "was removed"),
        (away, 4, "no response from the scheduler"),
    ],
)
@pytest.mark.parametrize("name", sorted(ON_NODES))
def test_every_wait_for_a_node_ends_with_a_code_a_reason_and_a_next_command(
    name: str,
    happens: Callable[[Cluster], None],
    code: int,
    reason: str,
    cluster: Cluster,
    ctl: Run,
) -> None:
    drain = cluster.add_node("n1").drain
    drain.state, drain.remaining = "draining", 1
    cluster.after_drain = lambda: happens(cluster)

    result = ctl(*name.split(), "n1", "--wait", "100ms")

    assert result.code == code
    assert reason in result.err
    assert result.err.startswith("error: ")
    commands = next_commands(result.err)
    assert commands
    assert all(is_understood(command) for command in commands)


def test_every_command_with_wait_is_covered() -> None:
    assert set(WAITING) - ON_SETS - ON_JOBS == {
        "apply",
        "edit",
        "node drain",
        "run",
        *(f"workload {verb}" for verb in ("apply", "delete", "redeploy", "restart", "retry")),
        *(f"workload {verb}" for verb in ("start", "stop")),
    }


@pytest.mark.parametrize("goal", Goal)
def test_a_workload_on_an_unreachable_node_ends_the_wait_after_a_while(goal: Goal) -> None:
    view = WorkloadView(status="Unknown", reason=ReasonDetail(code="NodeNotReady"))
    if goal is Goal.GONE:
        view = WorkloadView(status="Deleting", reason=ReasonDetail(code="NodeUnreachable"))
    early = UNREACHABLE_MAX - timedelta(seconds=1)

    assert (
        evaluate(view, WaitTarget(goal), may_be_stale=False, unchanged_for=early) is WaitState.OPEN
    )
    assert (
        evaluate(view, WaitTarget(goal), may_be_stale=False, unchanged_for=UNREACHABLE_MAX)
        is WaitState.FAILED
    )


@pytest.mark.parametrize(
    ("wanted", "view"),
    [
        (WaitTarget(Goal.RUNNING), WorkloadView(status="Stopped", desired_state="Stopped")),
        (WaitTarget(Goal.STOPPED), WorkloadView(status="Running", desired_state="Running")),
        (WaitTarget(Goal.RUNNING, "r1"), WorkloadView(status="Running", revision_id="r2")),
        (WaitTarget(Goal.GONE), WorkloadView(status="Running", desired_state="Running")),
    ],
    ids=["stopped", "started", "replaced", "applied again"],
)
def test_a_superseded_request_ends_the_wait(wanted: WaitTarget, view: WorkloadView) -> None:
    assert evaluate(view, wanted, may_be_stale=False, unchanged_for=timedelta()) is WaitState.OPEN
    assert (
        evaluate(view, wanted, may_be_stale=False, unchanged_for=SUPERSEDED_MAX) is WaitState.FAILED
    )
