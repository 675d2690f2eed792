"""`persysctl gitops`: workloads that follow a Git branch, from a gateway or computed from their specs.

Only a gateway receives webhooks, so only a gateway knows the last push.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import Row, render_rows
from persys.core.intent.gitops import repository_name
from persys.errors import NotFoundError

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_COMPOSE = "compose"
_COMMIT_LENGTH = 12

_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "WORKLOAD": lambda row: str(row["workload_id"]),
    "REPOSITORY": lambda row: str(row["repository"]),
    "BRANCH": lambda row: str(row["branch"]),
    "COMMIT": lambda row: str(row.get("commit", ""))[:_COMMIT_LENGTH],
    "STATUS": lambda row: str(row.get("status", "")),
    "CLUSTER": lambda row: str(row.get("cluster", "")),
    "LAST PUSH": lambda row: _push(row.get("last_delivery")),
}


def show(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        rows = _from_gateway(client) if client.is_gateway else list(_computed(client))
    print(
        render_rows(
            rows,
            options,
            columns=_COLUMNS,
            name=lambda row: str(row["workload_id"]),
            empty="no workload follows a Git branch",
            blank="-",
        )
    )
    return ExitCode.OK


def _from_gateway(client: "SchedulerClient") -> list[Row]:
    found = client.get_gitops()
    for problem in found.get("problems", ()):
        print(f"cluster {problem.get('cluster')}: {problem.get('detail')}", file=sys.stderr)
    return list(found["workloads"])


def _computed(client: "SchedulerClient") -> Iterator[dict[str, Any]]:
    for listed in client.list_workloads():
        if listed.type.lower() != _COMPOSE:
            continue
        try:
            view = client.get_workload(listed.workload_id)
        except NotFoundError:
            continue  # deleted since it was listed
        if compose := view.spec.compose.git_repo:
            yield {
                "workload_id": view.workload_id,
                "repository": repository_name(compose),
                "branch": view.spec.compose.git_ref,
                "commit": view.metadata.get("compose.commit", ""),
                "status": view.status,
            }


def _push(delivery: object) -> str:
    if not isinstance(delivery, dict):
        return ""
    words = (delivery.get("at"), delivery.get("result") or delivery.get("status"))
    return " ".join(str(word) for word in words if word)
