"""`persysctl recovery`: show the mode of the control plane, and end recovery mode."""

from argparse import Namespace
from datetime import datetime

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import age
from persys.cli.framework.arguments import split_names
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import dump, key_value_lines, render_one, to_dict
from persys.core.duration import format_duration
from persys.wire.gen.control.v1.control_pb2 import ModeView, RecoveryAnswer


def status(options: Namespace) -> ExitCode:
    with scheduler_client(options, quiet=True) as client:
        view = client.get_mode()
    print(render_one(view, options, describe=_describe, name=lambda view: view.mode))
    return ExitCode.OK


def rebuild(options: Namespace) -> ExitCode:
    with scheduler_client(options, quiet=True) as client:
        answer = client.rebuild_from_agents(
            dry_run=options.dry_run, allow_secrets=split_names(options.allow_secrets)
        )
    if options.dry_run:
        return _preview(answer, options)
    return print_result(answer, "rebuilt from the agents")


def accept_empty(options: Namespace) -> ExitCode:
    with scheduler_client(options, quiet=True) as client:
        answer = client.accept_empty()
    return print_result(answer, "accepted the records in the store")


def print_result(answer: RecoveryAnswer, what: str) -> ExitCode:
    """Print what was restored and what was not; the command succeeds in both cases."""
    print(f"{what}: {answer.nodes} nodes, {answer.workloads} workloads; the mode is normal")
    if answer.left_out:
        print("not restored, or to be checked:")
        for line in answer.left_out:
            print(f"  {line}")
    return ExitCode.OK


def _preview(answer: RecoveryAnswer, options: Namespace) -> ExitCode:
    if options.output in ("json", "yaml"):
        print(dump(to_dict(answer), options.output))
        return ExitCode.OK
    print(f"would restore {answer.nodes} nodes and {answer.workloads} workloads")
    for one in answer.recovered:
        secrets = f", secrets: {', '.join(one.secrets)}" if one.secrets else ""
        print(f"  {one.workload_id} as {one.node_id} reports it: {one.spec.type}{secrets}")
    for line in answer.left_out:
        print(f"  not restored: {line}")
    return ExitCode.OK


def _describe(view: ModeView, now: datetime, wide: bool) -> str:
    facts = key_value_lines(
        (
            ("Mode", view.mode),
            ("Reason", view.reason),
            ("Since", f"{age(view, 'since', now=now)} ago"),
            ("Data age", _age(view)),
            ("Store", view.store),
            ("Leader", " at ".join(filter(None, (view.leader, view.leader_endpoint)))),
            ("Answered by", view.role),
            ("Cluster", view.cluster_uid),
            ("Nodes", str(view.nodes)),
            ("Workloads", str(view.workloads)),
            ("On agents", str(view.workloads_on_agents) if view.mode == "recovery" else ""),
        )
    )
    steps = "".join(f"\n  {step}" for step in view.next_steps)
    return f"{facts}\nNext:{steps}" if steps else facts


def _age(view: ModeView) -> str:
    from datetime import timedelta

    seconds = timedelta(seconds=view.data_age_ms // 1000)
    return format_duration(seconds) if view.mode != "normal" else ""
