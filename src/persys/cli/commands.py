"""Every command of persysctl as data: the parser and the completion of shells are both made from it.

Nothing here imports what a command needs. A command names its function, which is imported when it is called:
start-up time is felt at every keystroke of a completion.
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
            Command("list", "all nodes", "nodes:list_nodes", (STATUS, WATCH)),
            Command("get", "one node", "nodes:get_node", (NODE, WATCH)),
            Command("cordon", "give a node no new work", "upkeep:cordon", (NODE,)),
            Command("uncordon", "let a node take work again", "upkeep:uncordon", (NODE,)),
            Command("taint", "keep new work away but for what tolerates it", "upkeep:taint", TAINT),
            Command("untaint", "take one taint away, or all", "upkeep:untaint", (NODE, TAINT_KEY)),
            Command("drain", "move all work off a node", "upkeep:drain", (NODE, DEADLINE, WAIT)),
            Command(
                "confirm-dead",
                "vouch that a silent node runs nothing, so that its data holders may move",
                "upkeep:confirm_dead",
                (NODE,),
            ),
            Command("remove", "forget a node that has nothing", "upkeep:remove", (NODE,)),
        ),
    ),
    Group(
        "workload",
        "run, look at and remove workloads",
        (
            _APPLY,
            Command("list", "all workloads", "workloads:list_workloads", (STATUS, ON_NODE, WATCH)),
            Command(
                "get",
                "one workload, and why it is as it is",
                "workloads:get_workload",
                (WORKLOAD, WATCH),
            ),
            Command("delete", "remove workloads", "changes:delete", (WORKLOADS, WAIT)),
            Command("retry", "try failed workloads again now", "changes:retry", (WORKLOADS, WAIT)),
            Command(
                "redeploy",
                "redeploy with the current commit or image tag",
                "changes:redeploy",
                (WORKLOADS, WAIT),
            ),
            Command("start", "run stopped workloads", "changes:start", (WORKLOADS, WAIT)),
            Command("stop", "stop workloads and keep them", "changes:stop", (WORKLOADS, WAIT)),
        ),
    ),
    Group(
        "cluster",
        "look at the whole",
        (
            Command("summary", "nodes and workloads, counted", "cluster:summary", (WATCH,)),
            Command("list", "the clusters behind a gateway", "gateway:list_clusters"),
            Command(
                "whoami", "as whom the scheduler sees you, and what you may", "identity:whoami"
            ),
        ),
    ),
    Group(
        "drift",
        "look at where nodes differ from what is recorded",
        (
            Command(
                "list",
                "all differences that were found and are not over",
                "drifts:list_drifts",
                (ON_NODE, OF_WORKLOAD, DRIFT_TYPE, WATCH),
            ),
        ),
    ),
    Group(
        "orphans",
        "copies on nodes that nobody asked for; nothing happens to them by itself",
        (
            Command("list", "all orphans", "drifts:list_orphans", (ON_NODE, WATCH)),
            Command(
                "get",
                "one orphan, with the spec and the secrets that its node reports",
                "drifts:get_orphan",
                (WHERE, WORKLOAD),
            ),
            Command(
                "adopt",
                "make an orphan a workload again, without restarting it",
                "drifts:adopt",
                (WHERE, WORKLOAD, ALLOW_SECRETS),
            ),
            Command(
                "delete",
                "remove an orphan from its node, with its data unless that is retained",
                "drifts:delete",
                (WHERE, WORKLOAD),
            ),
        ),
    ),
    Group(
        "image",
        "images that machines start from; each node has its own",
        (
            Command(
                "add",
                "bring an image to every ready node that runs machines",
                "images:add",
                (IMAGE, IMAGE_SOURCE, SHA256, ON_NODES),
            ),
            Command("list", "all images, with their nodes", "images:list_images", (ON_NODE, WATCH)),
            Command(
                "remove",
                "remove an image that no workload needs",
                "images:remove",
                (IMAGE, ON_NODES),
            ),
        ),
    ),
    Group(
        "volume",
        "data of workloads: managed volumes, and disks of machines",
        (
            Command(
                "list",
                "all volumes, also those that outlived their workload",
                "volumes:list_volumes",
                (ON_NODE, OF_WORKLOAD, WATCH),
            ),
            Command("get", "one volume", "volumes:get", (VOLUME, ON_NODE)),
            Command(
                "delete",
                "delete a volume that no workload has, with all that is in it",
                "volumes:delete",
                (VOLUME, ON_NODE),
            ),
        ),
    ),
    Group(
        "snapshot",
        "keep the whole state as a file, and go back to it",
        (
            Command("save", "write all that is on record to a file", "snapshot:save", (SNAPSHOT,)),
            Command(
                "inspect", "check a file and show what is in it", "snapshot:inspect", (SNAPSHOT,)
            ),
            Command(
                "restore",
                "in recovery mode or into an empty cluster: go back to a file",
                "snapshot:restore",
                (SNAPSHOT,),
            ),
        ),
    ),
    Group(
        "suggestion",
        "submit, list and approve suggestions of automation policies",
        (
            Command(
                "submit",
                "submit a suggestion from a file and show the decision",
                "suggestions:submit",
                (SUGGESTION,),
            ),
            Command(
                "list",
                "all suggestions that are kept, newest first",
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
        "look at the mode, and end a recovery",
        (
            Command("status", "the mode, why, and what to do next", "recovery:status"),
            Command(
                "rebuild-from-agents",
                "bring back what the scheduler remembers and what agents keep",
                "recovery:rebuild",
                (PREVIEW, ALLOW_SECRETS),
            ),
            Command(
                "accept-empty",
                "go on with what the store has; what agents have become orphans",
                "recovery:accept_empty",
            ),
        ),
    ),
    Group(
        "record",
        "stored records that cannot be read: damaged, or written by a newer version",
        (
            Command("list", "all such records", "stored_records:list_records", (WATCH,)),
            Command(
                "get",
                "one such record with its bytes, or export them to a file",
                "stored_records:get",
                (RECORD_KEY, EXPORT),
            ),
            Command(
                "delete",
                "delete such a record from the store while the scheduler runs",
                "stored_records:delete",
                (RECORD_KEY, CONFIRM, RECORD_VERSION),
            ),
        ),
    ),
    Group(
        "token",
        "let people in, and nodes, schedulers and gateways join",
        (
            Command(
                "create",
                "one for a person, or one that is good for one join",
                "tokens:create",
                (ROLE, NAME, ALLOW, TTL, HOST, AUTHORITY),
            ),
            Command(
                "list",
                "all tokens, the newest first",
                "tokens:show",
                (TOKEN_KIND, LIMIT, AUTHORITY),
            ),
            Command("revoke", "take back that of a person", "tokens:revoke", (TOKEN_ID,)),
        ),
    ),
    Group(
        "secret",
        "values that specs name as secret://NAME, and that nobody reads back",
        (
            Command(
                "put",
                "a new version, from a file, a variable or standard input",
                "secrets:put",
                (SECRET, FROM_FILE, FROM_ENV),
            ),
            Command("list", "all secrets, and who uses them", "secrets:list_secrets", (WATCH,)),
            Command("delete", "one that no workload names", "secrets:delete", (SECRET,)),
        ),
    ),
    Group(
        "certificate",
        "give certificates, look at them, take them back",
        (
            Command(
                "create",
                "a key and a certificate, as files",
                "certificates:create",
                (ROLE, NAME, TTL, HOST, OUT, AUTHORITY),
            ),
            Command(
                "join",
                "a key and a certificate for a token",
                "certificates:use_token",
                (JOIN_TOKEN, HOST, OUT),
            ),
            Command(
                "list",
                "all that were given, the newest first",
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
                "who gave what to whom, and what was refused",
                "certificates:audit",
                (LIMIT, AUTHORITY),
            ),
        ),
    ),
    Group(
        "context",
        "several clusters under names, in ~/.persys/config.yaml",
        (
            Command("list", "all contexts; a star is at the one in use", "contexts:list_contexts"),
            Command("use", "talk to this one from now on", "contexts:use", (CONTEXT,)),
            Command("show", "what a context says", "contexts:show", (SOME_CONTEXT,)),
            Command(
                "add",
                "keep --api or --scheduler, --cluster, --ca, --cert and --key under a name",
                "contexts:add",
                (CONTEXT, TOKEN_FILE, AUTHORITY, AGENT, USE),
            ),
            Command("remove", "forget a context", "contexts:remove", (CONTEXT,)),
        ),
    ),
    Group(
        "agent",
        "look at one agent directly, without the scheduler",
        (
            Command("health", "the agent and its runtimes", "agents:health", (AGENT,)),
            Command(
                "actions",
                "what the agent did, newest first",
                "agents:actions",
                (AGENT, OF_WORKLOAD, LIMIT),
            ),
            Command("list", "the workloads the agent has", "agents:list_workloads", (AGENT,)),
            Command(
                "gc",
                "remove what nothing on the node refers to any more",
                "agents:collect_garbage",
                (AGENT, DRY_RUN),
            ),
        ),
    ),
)

SINGLES = (
    _APPLY,  # what is typed most often has a short way
    Command("explain", "why a workload runs where it does or waits", "explain:show", (WORKLOAD,)),
    Command(
        "plan", "what applying a file would change; writes nothing", "plan:show", (FILES, STACK_ID)
    ),
    Command(
        "capacity",
        "how many more would fit, and whether the loss of any node could be borne",
        "capacity:show",
        (FILES, STACK_ID),
    ),
    Command(
        "events",
        "what happened, oldest first; with --watch also what happens from now on",
        "events:show",
        (WATCH_EVENTS, OF_WORKLOAD, OF_NODE, KIND, SINCE, LIMIT, AFTER),
    ),
    Command("gitops", "workloads that follow a repository and branch", "gitops:show"),
    Command("audit", "who changed what through a gateway", "gateway:audit", (LIMIT,)),
    Command(
        "logs",
        "what a workload writes",
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
        "console", "the serial console of a machine", "inside:console", (WORKLOAD, TAKE_CONSOLE)
    ),
    Command("top", "what nodes and workloads use now", "top:show", (SORT, ONCE, ON_NODE)),
    Command("stats", "what one workload uses", "top:stats", (WORKLOAD, WATCH)),
    Command(
        "doctor",
        "check for common problems and name the fix",
        "doctor.examine:run",
        (AGENT, KEPT_IN),
    ),
    Command("completion", "print the completion script of a shell", "completion:script", (SHELL,)),
    Command("version", "print the version", "version:show"),
)

# Not shown: shells call it while the user types.
COMPLETE = Command("__complete", "", "completion:complete")
