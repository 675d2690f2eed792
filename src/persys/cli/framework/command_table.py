"""The command table of persysctl. The parser, shell completion and the manual are generated from it.

The rows are in `tables/`. A command names its function as a string, and the module is imported when the
command runs: shell completion starts persysctl at every keystroke, so the table must load fast.
"""

from persys.cli.framework.tables import access, cluster, nodes, sets, workloads
from persys.cli.framework.tables.command import Command, Group

SECTIONS: tuple[tuple[str, tuple[Group | Command, ...]], ...] = (
    (
        "workloads",
        (
            workloads.WORKLOAD,
            workloads.RUN,
            workloads.APPLY,  # a shortcut for `workload apply`, the most frequent command
            workloads.EDIT,
            sets.SET,
            sets.SCALE,
            sets.ROLLOUT,
            sets.JOB,
            sets.SERVICE,
            workloads.INIT,
            workloads.PLAN,
            workloads.EXPLAIN,
            workloads.CAPACITY,
            workloads.SCHEMA,
            workloads.LOGS,
            workloads.EXEC,
            workloads.CONSOLE,
            workloads.PORT_FORWARD,
            workloads.CP,
            workloads.TOP,
            workloads.STATS,
            workloads.VOLUME,
            workloads.IMAGE,
            access.SECRET,
            workloads.GITOPS,
        ),
    ),
    ("nodes", (nodes.NODE, nodes.NODEPOOL, nodes.FEDERATION, nodes.AGENT)),
    (
        "cluster",
        (
            cluster.CLUSTER,
            cluster.EVENTS,
            cluster.DRIFT,
            cluster.ORPHANS,
            cluster.SNAPSHOT,
            cluster.RECOVERY,
            cluster.RECORD,
            cluster.SUGGESTION,
        ),
    ),
    ("access", (access.TOKEN, access.CERTIFICATE, access.AUDIT)),
    (
        "this machine",
        (
            cluster.DOCTOR,
            access.CONTEXT,
            access.COMPLETION,
            access.HELP,
            access.VERSION,
        ),
    ),
)
_ROWS = [row for _, rows in SECTIONS for row in rows]
GROUPS = tuple([row for row in _ROWS if isinstance(row, Group)])
SINGLES = tuple([row for row in _ROWS if isinstance(row, Command)])

# Hidden: completion scripts call it while the user types.
COMPLETE = Command("__complete", "", "framework.completion:complete")
