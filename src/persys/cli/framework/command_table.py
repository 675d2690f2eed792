"""The command table of persysctl. The parser, shell completion and the manual are generated from it.

The rows are in `tables/`. A command names its function as a string, and the module is imported when the
command runs: shell completion starts persysctl at every keystroke, so the table must load fast.
"""

from persys.cli.framework.tables import access, cluster, nodes, workloads
from persys.cli.framework.tables.command import Command

GROUPS = (
    nodes.NODE,
    nodes.FEDERATION,
    workloads.WORKLOAD,
    cluster.CLUSTER,
    cluster.DRIFT,
    cluster.ORPHANS,
    workloads.IMAGE,
    workloads.VOLUME,
    cluster.SNAPSHOT,
    cluster.SUGGESTION,
    cluster.RECOVERY,
    cluster.RECORD,
    access.TOKEN,
    access.SECRET,
    nodes.NODEPOOL,
    access.CERTIFICATE,
    access.CONTEXT,
    nodes.AGENT,
)

SINGLES = (
    workloads.APPLY,  # a shortcut for `workload apply`, the most frequent command
    workloads.EXPLAIN,
    workloads.PLAN,
    workloads.CAPACITY,
    workloads.SCHEMA,
    cluster.EVENTS,
    workloads.GITOPS,
    access.AUDIT,
    workloads.LOGS,
    workloads.EXEC,
    workloads.CONSOLE,
    workloads.TOP,
    workloads.STATS,
    cluster.DOCTOR,
    access.COMPLETION,
    access.VERSION,
)

# Hidden: completion scripts call it while the user types.
COMPLETE = Command("__complete", "", "framework.completion:complete")
