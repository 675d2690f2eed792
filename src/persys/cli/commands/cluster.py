"""`persysctl cluster`: summary, the clusters behind a gateway, and the identity of the user."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import datetime

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Row, key_value_lines, render_one, render_rows
from persys.wire.gen.control.v1.control_pb2 import GetClusterSummaryResponse, IdentityView

_CLUSTERS: Mapping[str, Callable[[Row], str]] = {
    "ID": lambda row: str(row["id"]),
    "NAME": lambda row: str(row.get("name", "")),
    "ROUTING": lambda row: str(row.get("routing_strategy", "")),
    "SCHEDULERS": lambda row: f"{row['healthy_schedulers']}/{row['total_schedulers']} healthy",
    "LEADER": lambda row: _leader(row),
}


def summary(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:

        def fetch() -> GetClusterSummaryResponse:
            found = client.get_summary()
            if options.watch:
                found.ClearField("generated_at")  # it would count as a change at every poll
            return found

        return print_or_watch(
            fetch,
            lambda counts: render_one(
                counts, options, describe=_describe_summary, name=lambda counts: client.target
            ),
            watch=options.watch,
        )


def list_clusters(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        found = client.list_clusters()
    print(
        render_rows(
            found["clusters"],
            options,
            columns=_CLUSTERS,
            name=lambda row: str(row["id"]),
            empty="no clusters",
            blank="-",
        )
    )
    return ExitCode.OK


def whoami(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        print(
            render_one(
                client.get_identity(),
                options,
                describe=_describe_identity,
                name=lambda found: (
                    f"{found.role}/{found.name}" if found.role else "unauthenticated"
                ),
            )
        )
    return ExitCode.OK


def _describe_summary(counts: GetClusterSummaryResponse, now: datetime, wide: bool) -> str:
    nodes = f"{counts.total_nodes} ({counts.ready_nodes} ready, {counts.not_ready_nodes} not ready)"
    workloads = (
        f"{counts.total_workloads} ({counts.running_workloads} running, "
        f"{counts.pending_workloads} pending, {counts.failed_workloads} failed, "
        f"{counts.deleted_workloads} deleted)"
    )
    return key_value_lines((("Nodes", nodes), ("Workloads", workloads)))


def _leader(row: Row) -> str:
    return next(
        (str(one["address"]) for one in row.get("schedulers", ()) if one.get("is_leader")), "-"
    )


def _describe_identity(found: IdentityView, now: datetime, wide: bool) -> str:
    if not found.role:
        return key_value_lines(
            (("Identity", "unauthenticated (the scheduler runs with -insecure)"),)
        )
    return key_value_lines(
        (
            ("Identity", f"{found.role}/{found.name}"),
            ("Permissions", ", ".join(found.deeds)),
            *((("Prefix", found.prefix),) if found.prefix else ()),
            _by(found),
        )
    )


def _by(found: IdentityView) -> tuple[str, str]:
    until = f"until {found.expires_at.ToJsonString()}"
    if found.token_id:
        return "Token", f"{found.token_id}, {until}"
    return "Certificate", f"{found.serial}, {until}"
