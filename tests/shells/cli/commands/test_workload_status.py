"""The advised command for each kind of failure."""

import re
import shlex
from typing import Any

import pytest

from persys.cli.commands.workload_status import _ADVICE, current_step, next_step, step_after
from persys.cli.framework.parser import parse
from persys.core.agent.admission import QUARANTINED
from persys.core.agent.report import INTERNAL_ERROR
from persys.model.status import FailureReason
from persys.scheduler.secrets.references import UNRESOLVED
from persys.wire.gen.control.v1.control_pb2 import ReasonDetail, WorkloadView


def a_failure(reason: str = "RUNTIME_ERROR", code: str = "", **metadata: str) -> WorkloadView:
    return WorkloadView(
        workload_id="web",
        status="Failed",
        failure_reason=reason,
        reason=ReasonDetail(code=code),
        assigned_node_id="n1",
        metadata={f"container.{name}": value for name, value in metadata.items()},
    )


def commands_of(advice: str) -> list[str]:
    return re.findall(r"`(persysctl [^`]+)`", advice)


@pytest.mark.parametrize("advice", _ADVICE.values(), ids=_ADVICE)
def test_every_advice_names_a_command_that_exists(advice: str) -> None:
    commands = commands_of(advice.format(name="web", node="n1"))

    assert commands
    for command in commands:
        parse(shlex.split(command)[1:])


@pytest.mark.parametrize("reason", FailureReason)
def test_every_failure_reason_has_advice(reason: FailureReason) -> None:
    assert commands_of(next_step(a_failure(reason.value)))


@pytest.mark.parametrize(
    ("view", "command"),
    [
        (a_failure(code="CrashLoop"), "persysctl logs web"),
        (a_failure(exit_code="1"), "persysctl logs web"),
        (a_failure(), "persysctl workload get web"),
        (a_failure("IMAGE_PULL_FAILED"), "persysctl workload retry web"),
        (a_failure(code=QUARANTINED), "persysctl workload retry web"),
        (a_failure(code=INTERNAL_ERROR), "persysctl doctor"),
        (a_failure(code=UNRESOLVED), "persysctl secret list"),
        (a_failure("NETWORK_ERROR", "PortTaken"), "persysctl workload retry web"),
        (a_failure("", "SomethingNew"), "persysctl node get n1"),
    ],
    ids=lambda value: "" if isinstance(value, WorkloadView) else value,
)
def test_the_advised_command_fits_the_failure(view: WorkloadView, command: str) -> None:
    assert command in commands_of(next_step(view))


def test_logs_are_not_advised_for_a_workload_that_never_ran() -> None:
    assert "logs" not in next_step(a_failure(code="NameTaken"))


def test_without_a_node_its_events_are_advised() -> None:
    view = a_failure(code="NodeLost")
    view.assigned_node_id = ""

    assert commands_of(next_step(view)) == ["persysctl events --workload web"]


def test_a_healthy_workload_needs_no_advice() -> None:
    assert next_step(WorkloadView(workload_id="web", status="Running")) == ""


def a_pending(code: str = "", message: str = "", **fields: Any) -> WorkloadView:
    reason = ReasonDetail(code=code, message=message)
    return WorkloadView(workload_id="web", status="Pending", reason=reason, **fields)


@pytest.mark.parametrize(
    ("message", "headline"),
    [
        ("pulling nginx: 3 of 5 layers, 12 of 40 MB", "pull 30 %"),
        ("pulling nginx: 3 of 5 layers", "pull"),
        ("pulling debian-12: 5.0 of 0.0 MB", "pull"),
        ("waiting: 4 other pulls from this registry", "pull"),
    ],
)
def test_a_pull_shows_its_share(message: str, headline: str) -> None:
    step = current_step(a_pending("Pulling", message))

    assert step is not None
    assert step.headline == headline


@pytest.mark.parametrize(
    ("services", "headline"),
    [
        ("db=running,job=completed,web=created", "2 of 3 services running"),
        ("db=missing", "0 of 1 services running"),
        ("db=running,web=starting", "1 of 2 services running"),
    ],
)
def test_a_stack_shows_how_many_services_run(services: str, headline: str) -> None:
    step = current_step(a_pending(metadata={"compose.services": services}))

    assert step is not None
    assert step.headline == headline


def test_a_health_check_that_has_not_passed_is_a_step() -> None:
    view = WorkloadView(status="Running", metadata={"container.health": "starting"})

    assert current_step(view) == ("health check", "has not passed yet", None, False)
    view.metadata["container.health_failures"] = "2 of 3"
    assert current_step(view) == ("health check failed 2 of 3", "has not passed yet", None, False)


def test_a_workload_that_its_node_has_accepted_is_starting() -> None:
    accepted = a_pending(admitted_on_node=True, assigned_node_id="n1")

    assert current_step(accepted) == ("starting", "on node n1", None, False)
    assert current_step(a_pending()) is None


@pytest.mark.parametrize(
    ("views", "command"),
    [
        ([WorkloadView(workload_id="web", status="Running")], "persysctl logs web"),
        ([WorkloadView(workload_id="vm", status="Running", type="vm")], "persysctl console vm"),
        (
            [WorkloadView(workload_id="web", status="Stopped", desired_state="Stopped")],
            "persysctl workload start web",
        ),
        ([WorkloadView(status="Running")] * 2, "persysctl workload list"),
    ],
)
def test_a_wait_that_succeeds_names_the_next_command(
    views: list[WorkloadView], command: str
) -> None:
    assert f"`{command}`" in step_after(views)
