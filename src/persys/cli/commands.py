"""The command table of persysctl. The parser, shell completion and the manual are generated from it.

A command names its function as a string, and the module is imported when the command runs: shell completion
starts persysctl at every keystroke, so the table must load fast.
"""

from typing import NamedTuple

from persys.cli.arguments import (
    AFTER,
    AGENT,
    ALLOW,
    ALLOW_SECRETS,
    AUTHORITY,
    COMMAND,
    CONFIRM,
    CONTEXT,
    DEADLINE,
    DECISION,
    DRIFT_TYPE,
    DRY_RUN,
    EXPORT,
    FILES,
    FOLLOW,
    FROM_ENV,
    FROM_FILE,
    HOST,
    IMAGE,
    IMAGE_SOURCE,
    JOIN_TOKEN,
    KEPT_IN,
    KIND,
    LIMIT,
    NAME,
    NODE,
    OF_NODE,
    OF_WORKLOAD,
    ON_NODE,
    ON_NODES,
    ONCE,
    OUT,
    PREVIEW,
    PREVIOUS,
    RAW,
    REASON,
    RECORD_KEY,
    RECORD_VERSION,
    ROLE,
    SECRET,
    SERVICE,
    SHA256,
    SHELL,
    SINCE,
    SNAPSHOT,
    SOME_CONTEXT,
    SORT,
    STACK_ID,
    STATUS,
    STDIN,
    SUGGESTION,
    SUGGESTION_ID,
    TAIL,
    TAINT,
    TAINT_KEY,
    TAKE_CONSOLE,
    TIMESTAMPS,
    TOKEN_FILE,
    TOKEN_ID,
    TOKEN_KIND,
    TTL,
    TTY,
    USE,
    VOLUME,
    WAIT,
    WATCH,
    WATCH_EVENTS,
    WHERE,
    WHICH,
    WORKLOAD,
    WORKLOADS,
    Argument,
)


class Command(NamedTuple):
    name: str
    help: str
    run: str  # module:function
    arguments: tuple[Argument, ...] = ()


class Group(NamedTuple):
    name: str
    help: str
    commands: tuple[Command, ...]


_APPLY = Command(
    "apply",
    "create or update workloads from files",
    "changes:apply",
    (FILES, STACK_ID, WAIT),
)

GROUPS = (
    Group(
        "node",
        "show and manage nodes, the machines with an agent",
        (
            Command("list", "list nodes", "nodes:list_nodes", (STATUS, WATCH)),
            Command("get", "show one node", "nodes:get_node", (NODE, WATCH)),
            Command("cordon", "mark a node as unschedulable", "upkeep:cordon", (NODE,)),
            Command("uncordon", "mark a node as schedulable", "upkeep:uncordon", (NODE,)),
            Command(
                "taint",
                "add taints; only workloads that tolerate them are placed there",
                "upkeep:taint",
                TAINT,
            ),
            Command("untaint", "remove one taint, or all", "upkeep:untaint", (NODE, TAINT_KEY)),
            Command(
                "drain", "move all workloads off a node", "upkeep:drain", (NODE, DEADLINE, WAIT)
            ),
            Command(
                "confirm-dead",
                "declare an unreachable node dead; its stateful workloads may be rescheduled",
                "upkeep:confirm_dead",
                (NODE,),
            ),
            Command("remove", "remove an empty node from the cluster", "upkeep:remove", (NODE,)),
        ),
    ),
    Group(
        "workload",
        "run, show and remove workloads",
        (
            _APPLY,
            Command("list", "list workloads", "workloads:list_workloads", (STATUS, ON_NODE, WATCH)),
            Command(
                "get",
                "show one workload, with the reason for its status",
                "workloads:get_workload",
                (WORKLOAD, WATCH),
            ),
            Command("delete", "remove workloads", "changes:delete", (WORKLOADS, WAIT)),
            Command("retry", "retry failed workloads now", "changes:retry", (WORKLOADS, WAIT)),
            Command(
                "redeploy",
                "redeploy with the current commit or image tag",
                "changes:redeploy",
                (WORKLOADS, WAIT),
            ),
            Command("start", "start stopped workloads", "changes:start", (WORKLOADS, WAIT)),
            Command(
                "stop", "stop workloads without deleting them", "changes:stop", (WORKLOADS, WAIT)
            ),
        ),
    ),
    Group(
        "cluster",
        "cluster-wide views",
        (
            Command("summary", "count nodes and workloads by status", "cluster:summary", (WATCH,)),
            Command("list", "list the clusters behind a gateway", "gateway:list_clusters"),
            Command("whoami", "show your identity, role and permissions", "identity:whoami"),
        ),
    ),
    Group(
        "drift",
        "show where nodes differ from the recorded state",
        (
            Command(
                "list",
                "list open differences",
                "drifts:list_drifts",
                (ON_NODE, OF_WORKLOAD, DRIFT_TYPE, WATCH),
            ),
        ),
    ),
    Group(
        "orphans",
        "containers, stacks and VMs on nodes with no matching workload; never removed automatically",
        (
            Command("list", "list orphans", "drifts:list_orphans", (ON_NODE, WATCH)),
            Command(
                "get",
                "show one orphan, with the spec and the secrets that its node reports",
                "drifts:get_orphan",
                (WHERE, WORKLOAD),
            ),
            Command(
                "adopt",
                "adopt an orphan as a workload, without restarting it",
                "drifts:adopt",
                (WHERE, WORKLOAD, ALLOW_SECRETS),
            ),
            Command(
                "delete",
                "delete an orphan from its node, with its data unless the data is retained",
                "drifts:delete",
                (WHERE, WORKLOAD),
            ),
        ),
    ),
    Group(
        "image",
        "VM images; each node stores its own",
        (
            Command(
                "add",
                "add an image to every ready node that runs VMs",
                "images:add",
                (IMAGE, IMAGE_SOURCE, SHA256, ON_NODES),
            ),
            Command(
                "list", "list images, with their nodes", "images:list_images", (ON_NODE, WATCH)
            ),
            Command(
                "remove",
                "remove an image that no workload uses",
                "images:remove",
                (IMAGE, ON_NODES),
            ),
        ),
    ),
    Group(
        "volume",
        "data of workloads: managed volumes and VM disks",
        (
            Command(
                "list",
                "list volumes, including those whose workload was deleted",
                "volumes:list_volumes",
                (ON_NODE, OF_WORKLOAD, WATCH),
            ),
            Command("get", "show one volume", "volumes:get", (VOLUME, ON_NODE)),
            Command(
                "delete",
                "delete a volume that no workload uses, with its data",
                "volumes:delete",
                (VOLUME, ON_NODE),
            ),
        ),
    ),
    Group(
        "snapshot",
        "save the cluster state to a file, and restore it",
        (
            Command("save", "write all records to a file", "snapshot:save", (SNAPSHOT,)),
            Command(
                "inspect",
                "verify a snapshot file and show its contents",
                "snapshot:inspect",
                (SNAPSHOT,),
            ),
            Command(
                "restore",
                "restore a snapshot; needs recovery mode or an empty cluster",
                "snapshot:restore",
                (SNAPSHOT,),
            ),
        ),
    ),
    Group(
        "suggestion",
        "submit, list and approve suggestions from automation policies",
        (
            Command(
                "submit",
                "submit a suggestion from a file and show the decision",
                "suggestions:submit",
                (SUGGESTION,),
            ),
            Command(
                "list",
                "list stored suggestions, newest first",
                "suggestions:list_suggestions",
                (DECISION, LIMIT, WATCH),
            ),
            Command(
                "approve",
                "apply a pending suggestion; needs the permission of its action",
                "suggestions:approve",
                (SUGGESTION_ID,),
            ),
            Command(
                "reject", "reject a pending suggestion", "suggestions:reject", (SUGGESTION_ID,)
            ),
        ),
    ),
    Group(
        "recovery",
        "show the mode, and end recovery mode",
        (
            Command("status", "show the mode, its reason and the next step", "recovery:status"),
            Command(
                "rebuild-from-agents",
                "restore records from scheduler memory and from the agents",
                "recovery:rebuild",
                (PREVIEW, ALLOW_SECRETS),
            ),
            Command(
                "accept-empty",
                "leave recovery mode with the records in the store; other workloads on agents become orphans",
                "recovery:accept_empty",
            ),
        ),
    ),
    Group(
        "record",
        "stored records that cannot be read: damaged, or written by a newer version",
        (
            Command("list", "list unreadable records", "stored_records:list_records", (WATCH,)),
            Command(
                "get",
                "show one unreadable record with its bytes, or export them to a file",
                "stored_records:get",
                (RECORD_KEY, EXPORT),
            ),
            Command(
                "delete",
                "delete an unreadable record from the store while the scheduler runs",
                "stored_records:delete",
                (RECORD_KEY, CONFIRM, RECORD_VERSION),
            ),
        ),
    ),
    Group(
        "token",
        "tokens for users, and for nodes, schedulers and gateways that join",
        (
            Command(
                "create",
                "create a user token, or a join token that is valid once",
                "tokens:create",
                (ROLE, NAME, ALLOW, TTL, HOST, AUTHORITY),
            ),
            Command(
                "list",
                "list tokens, newest first",
                "tokens:show",
                (TOKEN_KIND, LIMIT, AUTHORITY),
            ),
            Command("revoke", "revoke a user token", "tokens:revoke", (TOKEN_ID,)),
        ),
    ),
    Group(
        "secret",
        "values that specs reference as secret://NAME; they cannot be read back",
        (
            Command(
                "put",
                "create or update a secret from a file, a variable or standard input",
                "secrets:put",
                (SECRET, FROM_FILE, FROM_ENV),
            ),
            Command(
                "list",
                "list secrets, and the workloads that use them",
                "secrets:list_secrets",
                (WATCH,),
            ),
            Command(
                "delete", "delete a secret that no workload references", "secrets:delete", (SECRET,)
            ),
        ),
    ),
    Group(
        "certificate",
        "issue, list and revoke certificates",
        (
            Command(
                "create",
                "create a key and a certificate as files",
                "certificates:create",
                (ROLE, NAME, TTL, HOST, OUT, AUTHORITY),
            ),
            Command(
                "join",
                "exchange a join token for a key and a certificate",
                "certificates:use_token",
                (JOIN_TOKEN, HOST, OUT),
            ),
            Command(
                "list",
                "list issued certificates, newest first",
                "certificates:show",
                (LIMIT, AUTHORITY),
            ),
            Command(
                "revoke",
                "revoke a certificate with its renewals, or all of an identity",
                "certificates:revoke",
                (WHICH, REASON, AUTHORITY),
            ),
            Command(
                "audit",
                "show the audit log of the CA: issued, renewed, revoked and refused",
                "certificates:audit",
                (LIMIT, AUTHORITY),
            ),
        ),
    ),
    Group(
        "context",
        "named clusters in ~/.persys/config.yaml",
        (
            Command("list", "list contexts; * marks the current one", "contexts:list_contexts"),
            Command("use", "set the current context", "contexts:use", (CONTEXT,)),
            Command("show", "show a context", "contexts:show", (SOME_CONTEXT,)),
            Command(
                "add",
                "save --api or --scheduler, --cluster, --ca, --cert and --key under a name",
                "contexts:add",
                (CONTEXT, TOKEN_FILE, AUTHORITY, AGENT, USE),
            ),
            Command("remove", "remove a context", "contexts:remove", (CONTEXT,)),
        ),
    ),
    Group(
        "agent",
        "query one agent directly, without the scheduler",
        (
            Command(
                "health", "show the health of the agent and its runtimes", "agents:health", (AGENT,)
            ),
            Command(
                "actions",
                "list the actions of the agent, newest first",
                "agents:actions",
                (AGENT, OF_WORKLOAD, LIMIT),
            ),
            Command("list", "list the workloads on the agent", "agents:list_workloads", (AGENT,)),
            Command(
                "gc",
                "remove garbage: artifacts that no workload on the node uses",
                "agents:collect_garbage",
                (AGENT, DRY_RUN),
            ),
        ),
    ),
)

SINGLES = (
    _APPLY,  # a shortcut for `workload apply`, the most frequent command
    Command(
        "explain",
        "explain why a workload runs on its node, or is pending",
        "explain:show",
        (WORKLOAD,),
    ),
    Command(
        "plan",
        "show what applying a file would change; writes nothing",
        "plan:show",
        (FILES, STACK_ID),
    ),
    Command(
        "capacity",
        "show how many more copies fit, and whether the cluster tolerates the loss of any one node",
        "capacity:show",
        (FILES, STACK_ID),
    ),
    Command(
        "events",
        "list events, oldest first; with --watch, stream new ones",
        "events:show",
        (WATCH_EVENTS, OF_WORKLOAD, OF_NODE, KIND, SINCE, LIMIT, AFTER),
    ),
    Command("gitops", "list workloads that follow a Git branch", "gitops:show"),
    Command(
        "audit", "show the audit log of a gateway: who changed what", "gateway:audit", (LIMIT,)
    ),
    Command(
        "logs",
        "show the output of a workload",
        "logs:show",
        (WORKLOAD, FOLLOW, SINCE, TAIL, PREVIOUS, SERVICE, TIMESTAMPS, RAW),
    ),
    Command(
        "exec",
        "run a command inside a workload",
        "inside:run",
        (WORKLOAD, COMMAND, STDIN, TTY, SERVICE),
    ),
    Command(
        "console",
        "attach to the serial console of a VM",
        "inside:console",
        (WORKLOAD, TAKE_CONSOLE),
    ),
    Command(
        "top", "show the resource usage of nodes and workloads", "top:show", (SORT, ONCE, ON_NODE)
    ),
    Command("stats", "show the resource usage of one workload", "top:stats", (WORKLOAD, WATCH)),
    Command(
        "doctor",
        "check for common problems and name the fix",
        "doctor.examine:run",
        (AGENT, KEPT_IN),
    ),
    Command("completion", "print the completion script for a shell", "completion:script", (SHELL,)),
    Command("version", "print the version", "version:show"),
)

# Hidden: completion scripts call it while the user types.
COMPLETE = Command("__complete", "", "completion:complete")
