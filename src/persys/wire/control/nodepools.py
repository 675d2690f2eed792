"""Messages of node pools: the pool of a user, decoded into the model, and its views."""

from collections.abc import Sequence
from typing import assert_never

from persys.core.nodepools.steps import (
    Create,
    Destroy,
    Drain,
    DropPool,
    Hold,
    Keep,
    Remove,
    Step,
)
from persys.errors import MissingFieldError
from persys.model.nodepool import Machine, MachineSize, NodePool, PoolId, Software
from persys.model.placement import Resources
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

IDLE_AFTER_SECONDS = 600
PROVISION_DEADLINE_SECONDS = 900


def pool_of(message: control_pb2.NodePoolSpec) -> NodePool:
    """The pool of a user; `core/nodepools/checks.py` checks the values."""
    if not message.pool_id:
        raise MissingFieldError("pool.pool_id")
    return NodePool(
        PoolId(message.pool_id),
        message.provider,
        sizes=tuple(
            MachineSize(
                size.name,
                Resources(size.cpu_millicores, size.memory_mb, size.disk_gb),
                size.hour_price,
            )
            for size in message.sizes
        ),
        max_machines=message.max,
        spend_per_hour_max=message.spend_per_hour_max,
        region=message.region,
        image=message.image,
        min_machines=message.min,
        idle_after_seconds=message.idle_after_seconds or IDLE_AFTER_SECONDS,
        provision_deadline_seconds=(
            message.provision_deadline_seconds or PROVISION_DEADLINE_SECONDS
        ),
        labels=dict(message.labels),
        taints=frozenset(message.taints),
        tier=message.tier,
        software=Software(message.software_url, message.software_sha256),
        options=dict(message.options),
        credentials=message.credentials,
    )


def pool_message(pool: NodePool) -> control_pb2.NodePoolSpec:
    return control_pb2.NodePoolSpec(
        pool_id=pool.pool_id,
        provider=pool.provider,
        region=pool.region,
        image=pool.image,
        sizes=[
            control_pb2.MachineSize(
                name=size.name,
                cpu_millicores=size.resources.cpu_millicores,
                memory_mb=size.resources.memory_mb,
                disk_gb=size.resources.disk_gb,
                hour_price=size.hour_price,
            )
            for size in pool.sizes
        ],
        min=pool.min_machines,
        max=pool.max_machines,
        spend_per_hour_max=pool.spend_per_hour_max,
        idle_after_seconds=pool.idle_after_seconds,
        provision_deadline_seconds=pool.provision_deadline_seconds,
        labels=pool.labels,
        taints=sorted(pool.taints),
        tier=pool.tier,
        software_url=pool.software.url,
        software_sha256=pool.software.sha256,
        options=pool.options,
        credentials=pool.credentials,
    )


def pool_view(
    pool: NodePool, machines: Sequence[Machine], *, problem: str
) -> control_pb2.NodePoolView:
    """`problem`: why the provider does not answer."""
    made, retry_at = pool.created_at, pool.provisioning.retry_at
    return control_pb2.NodePoolView(
        spec=pool_message(pool),
        paused=pool.paused,
        deleting=pool.deleting,
        created_at=timestamp(made) if made is not None else None,
        machines=[
            control_pb2.MachineView(
                name=machine.name,
                size=machine.size,
                hour_price=machine.hour_price,
                state=machine.state,
                created_at=timestamp(machine.created_at),
                state_since=timestamp(machine.state_since),
                provider_id=machine.provider_id,
                reason=machine.reason,
            )
            for machine in sorted(machines, key=lambda one: one.number)
        ],
        spend_per_hour=spend_of(machines),
        failure_count=pool.provisioning.failure_count,
        retry_at=timestamp(retry_at) if retry_at is not None else None,
        problem=problem or pool.provisioning.message,
    )


def spend_of(machines: Sequence[Machine]) -> float:
    return round(sum(machine.hour_price for machine in machines), 6)


def step_message(step: Step) -> control_pb2.NodePoolStep:
    match step:
        case Create(machine=machine, workload_id=workload_id):
            return control_pb2.NodePoolStep(
                action="create",
                machine=machine.name,
                size=machine.size,
                hour_price=machine.hour_price,
                rule=step.rule,
                reason=step.why,
                workload_id=workload_id or "",
            )
        case Drain(machine=machine):
            return _of_machine("drain", machine, step.rule, step.why)
        case Remove(machine=machine):
            return _of_machine("remove", machine, step.rule, step.why)
        case Keep(machine=machine):
            return _of_machine("keep", machine, step.rule, step.why)
        case Destroy(name=name):
            return control_pb2.NodePoolStep(
                action="destroy", machine=name, rule=step.rule, reason=step.why
            )
        case Hold():
            return control_pb2.NodePoolStep(action="hold", rule=step.rule, reason=step.why)
        case DropPool():
            return control_pb2.NodePoolStep(action="drop", reason="none of its machines exists")
        case unreachable:
            assert_never(unreachable)


def _of_machine(action: str, machine: Machine, rule: str, why: str) -> control_pb2.NodePoolStep:
    return control_pb2.NodePoolStep(
        action=action,
        machine=machine.name,
        size=machine.size,
        hour_price=machine.hour_price,
        rule=rule,
        reason=why,
    )
