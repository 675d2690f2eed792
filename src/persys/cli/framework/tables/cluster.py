"""Commands for the state of the cluster: events, drift, snapshots, recovery and checks."""

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

CLUSTER = Group(
    "cluster",
    "cluster-wide views",
    (
        Command(
            "summary",
            "count nodes and workloads by status",
            "commands.cluster:summary",
            (arg.WATCH,),
        ),
        Command("list", "list the clusters behind a gateway", "commands.cluster:list_clusters"),
        Command("whoami", "show your identity, role and permissions", "commands.cluster:whoami"),
    ),
)

DRIFT = Group(
    "drift",
    "show where nodes differ from the recorded state",
    (
        Command(
            "list",
            "list open differences",
            "commands.drift:list_drifts",
            (arg.ON_NODE, arg.OF_WORKLOAD, arg.DRIFT_TYPE, arg.WATCH),
        ),
    ),
)

ORPHANS = Group(
    "orphans",
    "containers, stacks and VMs on nodes with no matching workload; never removed automatically",
    (
        Command("list", "list orphans", "commands.orphans:list_orphans", (arg.ON_NODE, arg.WATCH)),
        Command(
            "get",
            "show one orphan, with the spec and the secrets that its node reports",
            "commands.orphans:get_orphan",
            (arg.WHERE, arg.WORKLOAD),
        ),
        Command(
            "adopt",
            "adopt an orphan as a workload, without restarting it",
            "commands.orphans:adopt",
            (arg.WHERE, arg.WORKLOAD, arg.ALLOW_SECRETS),
        ),
        Command(
            "delete",
            "delete an orphan from its node, with its data unless the data is retained",
            "commands.orphans:delete",
            (arg.WHERE, arg.WORKLOAD),
        ),
    ),
)

SNAPSHOT = Group(
    "snapshot",
    "save the cluster state to a file, and restore it",
    (
        Command("save", "write all records to a file", "commands.snapshot:save", (arg.SNAPSHOT,)),
        Command(
            "inspect",
            "verify a snapshot file and show its contents",
            "commands.snapshot:inspect",
            (arg.SNAPSHOT,),
        ),
        Command(
            "restore",
            "restore a snapshot; needs recovery mode or an empty cluster",
            "commands.snapshot:restore",
            (arg.SNAPSHOT,),
        ),
    ),
)

SUGGESTION = Group(
    "suggestion",
    "submit, list and approve suggestions from automation policies",
    (
        Command(
            "submit",
            "submit a suggestion from a file and show the decision",
            "commands.suggestion:submit",
            (arg.SUGGESTION,),
        ),
        Command(
            "list",
            "list stored suggestions, newest first",
            "commands.suggestion:list_suggestions",
            (arg.DECISION, arg.LIMIT, arg.WATCH),
        ),
        Command(
            "approve",
            "apply a pending suggestion; needs the permission of its action",
            "commands.suggestion:approve",
            (arg.SUGGESTION_ID,),
        ),
        Command(
            "reject",
            "reject a pending suggestion",
            "commands.suggestion:reject",
            (arg.SUGGESTION_ID,),
        ),
    ),
)

RECOVERY = Group(
    "recovery",
    "show the mode, and end recovery mode",
    (
        Command(
            "status", "show the mode, its reason and the next step", "commands.recovery:status"
        ),
        Command(
            "rebuild-from-agents",
            "restore records from scheduler memory and from the agents",
            "commands.recovery:rebuild",
            (arg.PREVIEW, arg.ALLOW_SECRETS),
        ),
        Command(
            "accept-empty",
            "leave recovery mode with the records in the store; other workloads on agents become orphans",
            "commands.recovery:accept_empty",
        ),
    ),
)

RECORD = Group(
    "record",
    "stored records that cannot be read: damaged, or written by a newer version",
    (
        Command("list", "list unreadable records", "commands.record:list_records", (arg.WATCH,)),
        Command(
            "get",
            "show one unreadable record with its bytes, or export them to a file",
            "commands.record:get",
            (arg.RECORD_KEY, arg.EXPORT),
        ),
        Command(
            "delete",
            "delete an unreadable record from the store while the scheduler runs",
            "commands.record:delete",
            (arg.RECORD_KEY, arg.CONFIRM, arg.RECORD_VERSION),
        ),
    ),
)

EVENTS = Command(
    "events",
    "list events, oldest first; with --watch, stream new ones",
    "commands.events:show",
    (arg.WATCH_EVENTS, arg.OF_WORKLOAD, arg.OF_NODE, arg.KIND, arg.SINCE, arg.LIMIT, arg.AFTER),
)

DOCTOR = Command(
    "doctor",
    "check for common problems and name the fix",
    "doctor.run:run",
    (arg.AGENT, arg.STATE_DIRECTORY),
)
