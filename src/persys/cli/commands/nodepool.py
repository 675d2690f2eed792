"""`persysctl nodepool`: pools of machines that a provider creates for waiting workloads."""

from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    code_text,
    dump,
    key_value_lines,
    render_list,
    render_one,
    table,
    to_dict,
)
from persys.client.grpc.channel import RequestRefusedError
from persys.wire.gen.control.v1.control_pb2 import (
    MachineView,
    NodePoolStep,
    NodePoolView,
    PlanNodePoolResponse,
)

if TYPE_CHECKING:
    from persys.cli.specs.spec_files import InFile
    from persys.wire.specfile.spec_documents import PoolDocument


def _state(pool: NodePoolView) -> str:
    if pool.deleting:
        return "deleting"
    if pool.paused:
        return "paused"
    return "failing" if pool.problem else "active"


_COLUMNS = (
    Column[NodePoolView]("NAME", lambda pool, now: pool.spec.pool_id),
    Column[NodePoolView]("PROVIDER", lambda pool, now: pool.spec.provider),
    Column[NodePoolView]("STATE", lambda pool, now: code_text(_state(pool))),
    Column[NodePoolView]("MACHINES", lambda pool, now: str(len(pool.machines))),
    Column[NodePoolView]("MIN", lambda pool, now: str(pool.spec.min)),
    Column[NodePoolView]("MAX", lambda pool, now: str(pool.spec.max)),
    Column[NodePoolView]("SPEND/H", lambda pool, now: _price(pool.spend_per_hour)),
    Column[NodePoolView]("LIMIT/H", lambda pool, now: _price(pool.spec.spend_per_hour_max)),
    Column[NodePoolView]("REGION", lambda pool, now: pool.spec.region or BLANK, wide=True),
    Column[NodePoolView]("PROBLEM", lambda pool, now: pool.problem or BLANK, wide=True),
    Column[NodePoolView]("AGE", lambda pool, now: age(pool, "created_at", now=now)),
)
_MACHINE_COLUMNS = (
    Column[MachineView]("MACHINE", lambda machine, now: machine.name),
    Column[MachineView]("SIZE", lambda machine, now: machine.size),
    Column[MachineView]("PRICE/H", lambda machine, now: _price(machine.hour_price)),
    Column[MachineView]("STATE", lambda machine, now: code_text(machine.state)),
    Column[MachineView]("SINCE", lambda machine, now: age(machine, "state_since", now=now)),
    Column[MachineView]("PROVIDER ID", lambda machine, now: machine.provider_id or BLANK),
    Column[MachineView]("REASON", lambda machine, now: machine.reason or BLANK),
)


def create(options: Namespace) -> ExitCode:
    spec = _read(options.file)
    with scheduler_client(options) as client:
        try:
            pool = client.create_node_pool(spec.document.pool)
        except RequestRefusedError as err:
            raise spec.refusal(err) from err
    print(f"node pool {pool.spec.pool_id} is stored; `persysctl nodepool plan` shows what it does")
    return ExitCode.OK


def list_pools(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_node_pools,
            lambda found: render_list(
                found, options, columns=_COLUMNS, name=_name, empty="no node pools"
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.get_node_pool(options.pool),
            lambda pool: _render(pool, options),
            watch=options.watch,
        )


def _render(pool: NodePoolView, options: Namespace) -> str:
    if options.output == "yaml":
        from persys.wire.specfile.export import pool_text  # imported only when needed

        return pool_text(pool).rstrip("\n")
    return render_one(pool, options, describe=_described, name=_name)


def plan(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        found = client.plan_node_pool(options.pool)
    if options.output in ("json", "yaml"):
        print(dump(to_dict(found), options.output))
        return ExitCode.OK
    print(_planned(found))
    return ExitCode.OK


def pause(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.pause_node_pool(options.pool, paused=True)
    print(f"node pool {options.pool} is paused: it creates no machines")
    return ExitCode.OK


def resume(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.pause_node_pool(options.pool, paused=False)
    print(f"node pool {options.pool} is active")
    return ExitCode.OK


def delete(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        pool = client.delete_node_pool(options.pool)
    count = len(pool.machines)
    print(
        f"node pool {options.pool} is being deleted: {count} machines are drained and destroyed first"
        if count
        else f"node pool {options.pool} is being deleted"
    )
    return ExitCode.OK


def _read(name: str) -> "InFile[PoolDocument]":
    from persys.cli.specs.sources import read_sources
    from persys.cli.specs.spec_files import parse

    specs = parse(list(read_sources([name], recursive=False)))
    others = (specs.workloads, specs.sets, specs.jobs, specs.services)
    if any(others) or len(specs.pools) != 1:
        raise UsageError(f"{name}: expected one document with kind: nodepool")
    return specs.pools[0]


def _name(pool: NodePoolView) -> str:
    return pool.spec.pool_id


def _described(pool: NodePoolView, now: datetime, _wide: bool) -> str:
    spec = pool.spec
    facts = [
        ("Name", spec.pool_id),
        ("State", code_text(_state(pool))),
        ("Provider", spec.provider),
        ("Region", spec.region),
        ("Image", spec.image),
        ("Sizes", ", ".join(f"{size.name} ({_price(size.hour_price)}/h)" for size in spec.sizes)),
        ("Machines", f"{len(pool.machines)}, at least {spec.min}, at most {spec.max}"),
        ("Spend", f"{_price(pool.spend_per_hour)} of {_price(spec.spend_per_hour_max)} per hour"),
        ("Idle after", f"{spec.idle_after_seconds} s"),
        ("Provision deadline", f"{spec.provision_deadline_seconds} s"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in sorted(spec.labels.items()))),
        ("Taints", ", ".join(spec.taints)),
        ("Tier", str(spec.tier)),
        ("Credentials", f"secret {spec.credentials}" if spec.credentials else ""),
        ("Failures", str(pool.failure_count) if pool.failure_count else ""),
        ("Problem", pool.problem),
    ]
    text = key_value_lines(facts)
    if not pool.machines:
        return text
    return f"{text}\n\n{table(_MACHINE_COLUMNS, list(pool.machines), now)}"


def _planned(found: PlanNodePoolResponse) -> str:
    lines = [_step(step) for step in found.steps] or ["  nothing to do"]
    if found.problem:
        lines.append(f"! the provider does not answer: {found.problem}")
    creates = sum(step.action == "create" for step in found.steps)
    after = found.spend_per_hour + found.hour_price
    lines.append(
        f"{creates} to create for {_price(found.hour_price)} per hour;"
        f" {_price(found.spend_per_hour)} now, {_price(after)} after"
    )
    return "\n".join(lines)


def _step(step: NodePoolStep) -> str:
    sign = {"create": "+", "keep": " ", "hold": "!"}.get(step.action, "-")
    size = f" ({step.size}, {_price(step.hour_price)}/h)" if step.size else ""
    what = f"{step.action} {step.machine}".rstrip()
    return f"{sign} {what}{size}: {step.reason}"


def _price(price: float) -> str:
    return f"{price:g}"
