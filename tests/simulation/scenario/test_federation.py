"""Two clusters: the promises hold for workloads in the remote one, and planted faults are found."""

from collections.abc import Callable
from typing import Any

import pytest

from persys.errors import RuntimeUnavailableError
from persys.sim.engine.trace import rng
from persys.sim.fakes.federated_node import SimRemote
from persys.sim.federated_world import FederatedWorld
from persys.sim.run import Outcome, run
from persys.sim.scenario.faults import FAULTS, Group, kinds_of
from persys.sim.scenario.plan import FEDERATED, Plan, PlannedEvent, Shape
from persys.sim.scenario.specs import spec_of
from persys.wire.gen.control.v1 import control_pb2 as pb

SEED = 1
SHAPE = Shape(
    nodes=1, workloads=0, minutes=4, schedulers=1, streams=0.0, remote_nodes=2, remote_schedulers=1
)
FAULT_AT = 75.0
# The others run in the full tests.
SAMPLE = ("federation-crash-at", "remote-answers-lost", "remote-full", "token-revoked")

Wanted = Callable[[pb.WorkloadSpec], bool]


def names_of(wanted: Wanted, *, seed: int = SEED) -> list[str]:
    """The names of steady containers whose users apply such a spec."""
    names = (f"w{number:02d}" for number in range(99))
    specs = {name: spec_of(seed, name, 1, offloads=True) for name in names}
    return [name for name, spec in specs.items() if _is_steady(spec) and wanted(spec)]


def _is_steady(spec: pb.WorkloadSpec) -> bool:
    container = spec.container
    return "steady/" in container.image and not container.ports and not container.volumes


def is_offloaded(spec: pb.WorkloadSpec) -> bool:
    return spec.placement.offload == "prefer" and _is_stateless(spec)


def is_offloaded_with_data(spec: pb.WorkloadSpec) -> bool:
    rules, data = spec.placement, spec.container.managed_volumes
    return (
        rules.offload == "prefer"
        and rules.offload_data
        and bool(data)
        and not spec.stop_after_seconds
    )


def has_secret(spec: pb.WorkloadSpec) -> bool:
    return is_offloaded(spec) and "PASSWORD" in spec.container.env


def applied(*names: str, at: float = 25.0) -> list[PlannedEvent]:
    return [PlannedEvent(at + number, "apply", name, amount=1) for number, name in enumerate(names)]


def run_with(
    *events: PlannedEvent, shape: Shape = SHAPE, world: type[FederatedWorld] = FederatedWorld
) -> Outcome:
    return run(Plan(SEED, shape, tuple(sorted(events, key=lambda each: each.at))), world)


def starts_of(outcome: Outcome, name: str) -> list[str]:
    """The nodes that started the workload, in order."""
    return [
        line.who
        for line in outcome.lines
        if line.what.startswith("starts ") and f" {name} " in line.what
    ]


def test_a_workload_and_its_secret_are_removed_from_the_remote_cluster() -> None:
    name = names_of(has_secret)[0]

    outcome = run_with(*applied(name), PlannedEvent(60.0, "delete", name))

    assert outcome.violation is None
    assert FEDERATED in starts_of(outcome, name)
    assert any("+/secrets/sim--" in line.what for line in outcome.lines)


def test_a_workload_without_consent_waits_although_the_remote_cluster_has_capacity() -> None:
    names = names_of(lambda spec: not spec.placement.offload)

    outcome = run_with(*applied(*names[:12]))

    assert outcome.violation is None
    assert not any(FEDERATED in starts_of(outcome, name) for name in names)


@pytest.mark.parametrize("returns", [False, True])
def test_workloads_of_a_lost_node_are_offloaded_and_return_if_their_rules_say_so(
    returns: bool,
) -> None:
    names = names_of(
        lambda spec: (
            spec.placement.offload == "when-full"
            and _is_stateless(spec)
            and (getattr(spec.placement, "return") == "when-free") is returns
        )
    )[:2]

    outcome = run_with(*applied(*names), PlannedEvent(60.0, "power-off", "n1", seconds=170))

    assert outcome.violation is None
    for name in names:
        assert starts_of(outcome, name)[:2] == ["n1", FEDERATED]
        left = [line for line in outcome.lines if f"-/tombstones/{FEDERATED}/{name}" in line.what]
        assert bool(left) is returns


def _is_stateless(spec: pb.WorkloadSpec) -> bool:
    return not spec.container.managed_volumes and not spec.stop_after_seconds


@pytest.mark.parametrize("schedulers", [1, 3])
def test_a_remote_cluster_restored_from_an_old_snapshot_keeps_no_deleted_workload(
    schedulers: int,
) -> None:
    """Found by seed 6: they ran there until an operator deleted them."""
    names = names_of(is_offloaded)[:2]
    shape = Shape(**{**_fields(SHAPE), "remote_schedulers": schedulers})

    outcome = run_with(
        *applied(*names),
        PlannedEvent(40.0, "remote-snapshot"),
        PlannedEvent(60.0, "delete", names[0]),
        PlannedEvent(90.0, "remote-wipe-store", word="restore"),
        shape=shape,
    )

    assert outcome.violation is None
    assert starts_of(outcome, names[0]).count(FEDERATED) == 2


def test_data_on_an_unreachable_remote_node_is_not_started_again_elsewhere() -> None:
    """The remote cluster had forgotten the deleted workload, and its node still ran it."""
    name = names_of(is_offloaded_with_data)[0]
    shape = Shape(**{**_fields(SHAPE), "minutes": 8.0, "remote_nodes": 1})

    outcome = run_with(
        *applied(name, at=70.0),
        PlannedEvent(90.0, "remote-cut-node", "remote-n1", seconds=300.0, word="both"),
        PlannedEvent(100.0, "delete", name),
        *(PlannedEvent(at, "apply", name, amount=1) for at in (200.0, 300.0, 400.0)),
        shape=shape,
    )

    assert outcome.violation is None
    assert starts_of(outcome, name)[0] == FEDERATED


def _fields(shape: Shape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in shape.__struct_fields__}


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in SAMPLE else pytest.param(kind, marks=pytest.mark.full)
        for kind in kinds_of(Group.FEDERATION)
    ],
)
def test_requests_during_a_fault_are_completed_after_it(kind: str) -> None:
    deleted, stopped, *others = names_of(is_offloaded)[:4] + names_of(is_offloaded_with_data)[:2]
    fault = FAULTS[kind].draw(rng(SEED, kind), SHAPE)
    planned = PlannedEvent(
        FAULT_AT, kind, fault.target, seconds=30.0, amount=fault.amount, word=fault.word
    )

    outcome = run_with(
        *applied(deleted, stopped, *others),
        planned,
        PlannedEvent(FAULT_AT + 1, "delete", deleted),
        PlannedEvent(FAULT_AT + 1, "stop", stopped),
        *(PlannedEvent(FAULT_AT + 2, "apply", name, amount=2) for name in others),
    )

    assert outcome.violation is None


class ForgetfulRemote(SimRemote):
    """Concludes from a missing answer that a workload is absent."""

    async def workload(self, workload_id: str) -> pb.WorkloadView | None:
        try:
            return await super().workload(workload_id)
        except RuntimeUnavailableError:
            return None


class ForgetfulWorld(FederatedWorld):
    remote_type = ForgetfulRemote


def test_a_process_that_takes_silence_for_absence_is_detected() -> None:
    """Its node confirms the removal of a copy that runs, or leaves one: it depends on the lost answers."""
    names = names_of(is_offloaded)[:6]

    outcomes = [
        run_with(
            *applied(*names),
            PlannedEvent(60.0, "remote-answers-lost", FEDERATED, seconds=120.0, amount=share),
            *(PlannedEvent(65.0, "delete", name) for name in names),
            world=ForgetfulWorld,
        )
        for share in (0.3, 0.5, 0.7)
    ]

    found = {outcome.violation.promise for outcome in outcomes if outcome.violation is not None}
    assert found
    assert found <= {"3 reservation", "8 everything ends"}
