"""`persysctl cluster list` and `persysctl audit`, which only a gateway can answer."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from persys.cli.exits import Exit
from persys.cli.output import aligned, dump
from persys.cli.peers import scheduler

Row = Mapping[str, Any]

_CLUSTERS: Mapping[str, Callable[[Row], str]] = {
    "ID": lambda row: str(row["id"]),
    "NAME": lambda row: str(row.get("name", "")),
    "ROUTING": lambda row: str(row.get("routing_strategy", "")),
    "SCHEDULERS": lambda row: f"{row['healthy_schedulers']}/{row['total_schedulers']} healthy",
    "LEADER": lambda row: _leader(row),
}
_AUDIT: Mapping[str, Callable[[Row], str]] = {
    "TIME": lambda row: str(row["at"])[:19].replace("T", " "),
    "IDENTITY": lambda row: str(row["who"]),
    "ACTION": lambda row: str(row["deed"]),
    "TARGET": lambda row: str(row.get("target", "")),
    "CLUSTER": lambda row: str(row.get("cluster", "")),
    "RESULT": lambda row: str(row["status"]),
}


def list_clusters(options: Namespace) -> Exit:
    with scheduler(options) as client:
        found = client.list_clusters()
    print(shown(found["clusters"], options, _CLUSTERS, name="id", nothing="no clusters"))
    return Exit.OK


def audit(options: Namespace) -> Exit:
    with scheduler(options) as client:
        found = client.get_audit(limit=options.limit)
    print(shown(found["deeds"], options, _AUDIT, name="number", nothing="no audit entries"))
    return Exit.OK


def shown(
    rows: Sequence[Row],
    options: Namespace,
    columns: Mapping[str, Callable[[Row], str]],
    *,
    name: str,
    nothing: str,
) -> str:
    match options.output:
        case "name":
            return "\n".join(str(row[name]) for row in rows)
        case "json" | "yaml":
            return dump(list(rows), options.output)
        case _ if not rows:
            return nothing
        case _:
            cells = [[text(row) or "-" for text in columns.values()] for row in rows]
            return aligned([list(columns), *cells])


def _leader(row: Row) -> str:
    return next(
        (str(one["address"]) for one in row.get("schedulers", ()) if one.get("is_leader")), "-"
    )
