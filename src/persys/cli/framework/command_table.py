"""The command table of persysctl. The parser, shell completion and the manual are generated from it.

A command names its function as a string, and the module is imported when the command runs: shell completion
starts persysctl at every keystroke, so the table must load fast.
"""

from typing import NamedTuple

from persys.cli.framework import arguments as arg


class Command(NamedTuple):
    name: str
    help: str
    run: str  # module:function
    arguments: tuple[arg.Argument, ...] = ()


class Group(NamedTuple):
    name: str
    help: str
    commands: tuple[Command, ...]


_APPLY = Command(
    "apply",
    "create or update workloads from files",
    "commands.workload:apply",
    (arg.FILES, arg.STACK_ID, arg.WAIT),
)

GROUPS = (
    Group(
        "node",
        "show and manage nodes, the machines with an agent",
        (
            Command("list", "list nodes", "commands.node:list_nodes", (arg.STATUS, arg.WATCH)),
            Command("get", "show one node", "commands.node:get_node", (arg.NODE, arg.WATCH)),
            Command("cordon", "mark a node as unschedulable", "commands.node:cordon", (arg.NODE,)),
            Command(
                "uncordon", "mark a node as schedulable", "commands.node:uncordon", (arg.NODE,)
            ),
            Command(
                "taint",
                "add taints; only workloads that tolerate them are placed on the node",
                "commands.node:taint",
                arg.TAINT,
            ),
            Command(
                "untaint",
                "remove one taint, or all",
                "commands.node:untaint",
                (arg.NODE, arg.TAINT_KEY),
            ),
            Command(
                "drain",
                "move all workloads off a node",
                "commands.node:drain",
                (arg.NODE, arg.DEADLINE, arg.WAIT),
            ),
            Command(
                "confirm-dead",
                "declare an unreachable node dead; its stateful workloads may be rescheduled",
                "commands.node:confirm_dead",
                (arg.NODE,),
            ),
            Command(
                "remove",
                "remove an empty node from the cluster",
                "commands.node:remove",
                (arg.NODE,),
            ),
        ),
    ),
    Group(
        "federation",
        "use another cluster as a node of this cluster",
        (
            Command(
                "add",
                "check the remote cluster, issue a certificate, and write the settings of persys-federation",
                "commands.federation:add",
                arg.FEDERATION_ADD,
            ),
            Command(
                "list",
                "list federated nodes, with capacity and spend",
                "commands.federation:list_federations",
                (arg.WATCH,),
            ),
            Command(
                "get",
                "show one federated node, with its workloads",
                "commands.federation:get",
                (arg.FEDERATION, arg.WATCH),
            ),
            Command(
                "remove",
                "drain a federated node, and remove it from the cluster",
                "commands.federation:remove",
                (arg.FEDERATION, arg.FEDERATION_DIRECTORY),
            ),
        ),
    ),
    Group(
        "workload",
        "run, show and delete workloads",
        (
            _APPLY,
            Command(
                "list",
                "list workloads",
                "commands.workload:list_workloads",
                (arg.STATUS, arg.ON_NODE, arg.WATCH),
            ),
            Command(
                "get",
                "show one workload, with the reason for its status",
                "commands.workload:get_workload",
                (arg.WORKLOAD, arg.WATCH),
            ),
            Command(
                "delete", "delete workloads", "commands.workload:delete", (arg.WORKLOADS, arg.WAIT)
            ),
            Command(
                "retry",
                "retry failed workloads now",
                "commands.workload:retry",
                (arg.WORKLOADS, arg.WAIT),
            ),
            Command(
                "redeploy",
                "redeploy with the current commit or image tag",
                "commands.workload:redeploy",
                (arg.WORKLOADS, arg.WAIT),
            ),
            Command(
                "start",
                "start stopped workloads",
                "commands.workload:start",
                (arg.WORKLOADS, arg.WAIT),
            ),
            Command(
                "stop",
                "stop workloads without deleting them",
                "commands.workload:stop",
                (arg.WORKLOADS, arg.WAIT),
            ),
        ),
    ),
    Group(
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
            Command(
                "whoami", "show your identity, role and permissions", "commands.cluster:whoami"
            ),
        ),
    ),
    Group(
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
    ),
    Group(
        "orphans",
        "containers, stacks and VMs on nodes with no matching workload; never removed automatically",
        (
            Command(
                "list", "list orphans", "commands.orphans:list_orphans", (arg.ON_NODE, arg.WATCH)
            ),
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
    ),
    Group(
        "image",
        "VM images; each node stores its own",
        (
            Command(
                "add",
                "add an image to every ready node that runs VMs",
                "commands.image:add",
                (arg.IMAGE, arg.IMAGE_SOURCE, arg.SHA256, arg.ON_NODES),
            ),
            Command(
                "list",
                "list images, with their nodes",
                "commands.image:list_images",
                (arg.ON_NODE, arg.WATCH),
            ),
            Command(
                "remove",
                "remove an image that no workload uses",
                "commands.image:remove",
                (arg.IMAGE, arg.ON_NODES),
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
                "commands.volume:list_volumes",
                (arg.ON_NODE, arg.OF_WORKLOAD, arg.WATCH),
            ),
            Command("get", "show one volume", "commands.volume:get", (arg.VOLUME, arg.ON_NODE)),
            Command(
                "delete",
                "delete a volume that no workload uses, with its data",
                "commands.volume:delete",
                (arg.VOLUME, arg.ON_NODE),
            ),
        ),
    ),
    Group(
        "snapshot",
        "save the cluster state to a file, and restore it",
        (
            Command(
                "save", "write all records to a file", "commands.snapshot:save", (arg.SNAPSHOT,)
            ),
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
    ),
    Group(
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
    ),
    Group(
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
    ),
    Group(
        "record",
        "stored records that cannot be read: damaged, or written by a newer version",
        (
            Command(
                "list", "list unreadable records", "commands.record:list_records", (arg.WATCH,)
            ),
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
    ),
    Group(
        "token",
        "tokens for users, and for nodes, schedulers and gateways that join",
        (
            Command(
                "create",
                "create a user token, or a join token that is valid once",
                "commands.token:create",
                (
                    arg.ROLE,
                    arg.NAME,
                    arg.ALLOW,
                    arg.PREFIX,
                    arg.TTL,
                    arg.HOST,
                    arg.AUTHORITY,
                ),
            ),
            Command(
                "list",
                "list tokens, newest first",
                "commands.token:show",
                (arg.TOKEN_KIND, arg.LIMIT, arg.AUTHORITY),
            ),
            Command("revoke", "revoke a user token", "commands.token:revoke", (arg.TOKEN_ID,)),
        ),
    ),
    Group(
        "secret",
        "values that specs reference as secret://NAME; they cannot be read back",
        (
            Command(
                "put",
                "create or update a secret from a file, a variable or standard input",
                "commands.secret:put",
                (arg.SECRET, arg.FROM_FILE, arg.FROM_ENV),
            ),
            Command(
                "list",
                "list secrets, and the workloads that use them",
                "commands.secret:list_secrets",
                (arg.WATCH,),
            ),
            Command(
                "delete",
                "delete a secret that no workload references",
                "commands.secret:delete",
                (arg.SECRET,),
            ),
        ),
    ),
    Group(
        "nodepool",
        "machines that a provider creates for waiting workloads",
        (
            Command(
                "create",
                "create or update a node pool from a file",
                "commands.nodepool:create",
                (arg.POOL_FILE,),
            ),
            Command("list", "list node pools", "commands.nodepool:list_pools", (arg.WATCH,)),
            Command("get", "show one node pool", "commands.nodepool:get", (arg.POOL, arg.WATCH)),
            Command(
                "plan",
                "show what a node pool would create and destroy now, and the cost",
                "commands.nodepool:plan",
                (arg.POOL,),
            ),
            Command("pause", "create no machines", "commands.nodepool:pause", (arg.POOL,)),
            Command("resume", "create machines again", "commands.nodepool:resume", (arg.POOL,)),
            Command(
                "delete",
                "drain and destroy all machines of a node pool, and delete it",
                "commands.nodepool:delete",
                (arg.POOL,),
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
                "commands.certificate:create",
                (arg.ROLE, arg.NAME, arg.TTL, arg.HOST, arg.OUT, arg.AUTHORITY),
            ),
            Command(
                "join",
                "exchange a join token for a key and a certificate",
                "commands.certificate:use_token",
                (arg.JOIN_TOKEN, arg.HOST, arg.OUT),
            ),
            Command(
                "list",
                "list issued certificates, newest first",
                "commands.certificate:show",
                (arg.LIMIT, arg.AUTHORITY),
            ),
            Command(
                "revoke",
                "revoke a certificate with its renewals, or all of an identity",
                "commands.certificate:revoke",
                (arg.SERIAL_OR_IDENTITY, arg.REASON, arg.AUTHORITY),
            ),
            Command(
                "audit",
                "show the audit log of the CA: issued, renewed, revoked and refused",
                "commands.certificate:audit",
                (arg.LIMIT, arg.AUTHORITY),
            ),
        ),
    ),
    Group(
        "context",
        "named clusters in ~/.persys/config.yaml",
        (
            Command(
                "list", "list contexts; * marks the current one", "commands.context:list_contexts"
            ),
            Command("use", "set the current context", "commands.context:use", (arg.CONTEXT,)),
            Command("show", "show a context", "commands.context:show", (arg.OPTIONAL_CONTEXT,)),
            Command(
                "add",
                "save --api or --scheduler, --cluster, --ca, --cert and --key under a name",
                "commands.context:add",
                (arg.CONTEXT, arg.TOKEN_FILE, arg.AUTHORITY, arg.AGENT, arg.USE),
            ),
            Command("remove", "remove a context", "commands.context:remove", (arg.CONTEXT,)),
        ),
    ),
    Group(
        "agent",
        "query one agent directly, without the scheduler",
        (
            Command(
                "health",
                "show the health of the agent and its runtimes",
                "commands.agent:health",
                (arg.AGENT,),
            ),
            Command(
                "actions",
                "list the actions of the agent, newest first",
                "commands.agent:actions",
                (arg.AGENT, arg.OF_WORKLOAD, arg.LIMIT),
            ),
            Command(
                "list",
                "list the workloads on the agent",
                "commands.agent:list_workloads",
                (arg.AGENT,),
            ),
            Command(
                "gc",
                "remove garbage: artifacts that no workload on the node uses",
                "commands.agent:collect_garbage",
                (arg.AGENT, arg.DRY_RUN),
            ),
        ),
    ),
)

SINGLES = (
    _APPLY,  # a shortcut for `workload apply`, the most frequent command
    Command(
        "explain",
        "explain why a workload runs on its node, or is pending",
        "commands.explain:show",
        (arg.WORKLOAD,),
    ),
    Command(
        "plan",
        "show what applying a file would change; writes nothing",
        "commands.plan:show",
        (arg.FILES, arg.STACK_ID),
    ),
    Command(
        "capacity",
        "show how many more copies fit, and whether the cluster tolerates the loss of any one node",
        "commands.capacity:show",
        (arg.FILES, arg.STACK_ID),
    ),
    Command(
        "events",
        "list events, oldest first; with --watch, stream new ones",
        "commands.events:show",
        (arg.WATCH_EVENTS, arg.OF_WORKLOAD, arg.OF_NODE, arg.KIND, arg.SINCE, arg.LIMIT, arg.AFTER),
    ),
    Command("gitops", "list workloads that follow a Git branch", "commands.gitops:show"),
    Command(
        "audit",
        "show the audit log of a gateway: who changed what",
        "commands.audit:show",
        (arg.LIMIT,),
    ),
    Command(
        "logs",
        "show the output of a workload",
        "commands.logs:show",
        (
            arg.WORKLOAD,
            arg.FOLLOW,
            arg.SINCE,
            arg.TAIL,
            arg.PREVIOUS,
            arg.SERVICE,
            arg.TIMESTAMPS,
            arg.RAW,
        ),
    ),
    Command(
        "exec",
        "run a command inside a workload",
        "commands.exec:run",
        (arg.WORKLOAD, arg.COMMAND, arg.STDIN, arg.TTY, arg.SERVICE),
    ),
    Command(
        "console",
        "attach to the serial console of a VM",
        "commands.exec:console",
        (arg.WORKLOAD, arg.TAKE_CONSOLE),
    ),
    Command(
        "top",
        "show the resource usage of nodes and workloads",
        "commands.top:show",
        (arg.SORT, arg.ONCE, arg.ON_NODE),
    ),
    Command(
        "stats",
        "show the resource usage of one workload",
        "commands.top:stats",
        (arg.WORKLOAD, arg.WATCH),
    ),
    Command(
        "doctor",
        "check for common problems and name the fix",
        "doctor.run:run",
        (arg.AGENT, arg.STATE_DIRECTORY),
    ),
    Command(
        "completion",
        "print the completion script for a shell",
        "framework.completion:script",
        (arg.SHELL,),
    ),
    Command("version", "print the version", "commands.version:show"),
)

# Hidden: completion scripts call it while the user types.
COMPLETE = Command("__complete", "", "framework.completion:complete")
