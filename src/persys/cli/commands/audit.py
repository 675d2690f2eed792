"""`persysctl audit`: the audit log of a gateway."""

from argparse import Namespace
from collections.abc import Callable, Mapping

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import Row, render_rows

_AUDIT: Mapping[str, Callable[[Row], str]] = {
    "TIME": lambda row: str(row["at"])[:19].replace("T", " "),
    "IDENTITY": lambda row: str(row["who"]),
    "ACTION": lambda row: str(row["action"]),
    "TARGET": lambda row: str(row.get("target", "")),
    "CLUSTER": lambda row: str(row.get("cluster", "")),
    "RESULT": lambda row: str(row["status"]),
}


def show(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        found = client.get_audit(limit=options.limit)
    print(
        render_rows(
            found["entries"],
            options,
            columns=_AUDIT,
            name=lambda row: str(row["number"]),
            empty="no audit entries",
            blank="-",
        )
    )
    return ExitCode.OK
