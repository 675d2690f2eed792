"""Every command of persysctl as data: the parser and the completion of shells are both made from it.

Nothing here imports what a command needs. A command names its function, which is imported when it is called:
start-up time is felt at every keystroke of a completion.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Argument(NamedTuple):
    names: tuple[str, ...]
    how: Mapping[str, Any]  # as argparse's add_argument takes it
    completes: str = ""  # workload, node, file

    @property
    def is_option(self) -> bool:
        return self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool:
        return self.how.get("action") != "store_true"


class Command(NamedTuple):
    name: str
    help: str
    run: str  # module:function
    arguments: tuple[Argument, ...] = ()


class Group(NamedTuple):
    name: str
    help: str
    commands: tuple[Command, ...]


FORMS = ("table", "wide", "json", "yaml", "name")

GLOBAL = (
    Argument(
        ("--scheduler",),
        {
            "metavar": "HOST:PORT",
            "help": "or several, or the name of an SRV record "
            "[PERSYS_GRPC_ENDPOINT, then grpc_endpoint of ~/.persys/config.yaml] "
            "(default: 127.0.0.1:8085)",
        },
    ),
    Argument(
        ("--timeout",),
        {
            "metavar": "DURATION",
            "help": "for each request, and with --wait for all of the waiting (default: 10s, 5m)",
        },
    ),
    Argument(
        ("--insecure",),
        {
            "action": "store_true",
            "default": None,
            "help": "no TLS, for a scheduler with -insecure [PERSYS_INSECURE, then grpc_insecure]",
        },
    ),
    Argument(
        ("--ca",),
        {"metavar": "FILE", "help": "roots that are believed [PERSYS_TLS_CA, then ca_cert_path]"},
        "file",
    ),
    Argument(
        ("--cert",),
        {"metavar": "FILE", "help": "your certificate [PERSYS_TLS_CERT, then cert_path]"},
        "file",
    ),
    Argument(
        ("--key",), {"metavar": "FILE", "help": "its key [PERSYS_TLS_KEY, then key_path]"}, "file"
    ),
    Argument(("-o", "--output"), {"choices": FORMS, "help": "form of the output (default: table)"}),
)

_WATCH = Argument(("--watch",), {"action": "store_true", "help": "show again on every change"})
_WAIT = Argument(
    ("--wait",),
    {"metavar": "DURATION", "help": "wait until it is so, or has failed (--wait or --wait=2m)"},
)
_DEADLINE = Argument(
    ("--deadline",),
    {"metavar": "DURATION", "help": "when it counts as overdue if the node is not empty"},
)
_NODE = Argument(("id",), {"metavar": "NODE", "help": "id of the node"}, "node")
_TAINT = (
    _NODE,
    Argument(
        ("taints",), {"metavar": "KEY[=VALUE]", "nargs": "+", "help": "such as gpu or team=ml"}
    ),
)
_TAINT_KEY = Argument(
    ("taint_key",), {"metavar": "KEY", "nargs": "?", "default": "", "help": "none: all of them"}
)
_WORKLOAD = Argument(("id",), {"metavar": "WORKLOAD", "help": "id of the workload"}, "workload")
_WORKLOADS = Argument(
    ("ids",), {"metavar": "WORKLOAD", "nargs": "+", "help": "ids of workloads"}, "workload"
)
_TAKE_CONSOLE = Argument(
    ("--force",), {"action": "store_true", "help": "take it from whoever has it"}
)
_IMAGE = Argument(("name",), {"metavar": "NAME", "help": "such as debian-12"})
_IMAGE_SOURCE = Argument(
    ("source",),
    {
        "metavar": "FILE|URL",
        "help": "a file here, or an http, https or file: address that the nodes read themselves",
    },
    "file",
)
_SHA256 = Argument(
    ("--sha256",),
    {"metavar": "HEX", "default": "", "help": "refuse a file with another checksum"},
)
_ON_NODES = Argument(
    ("--node",),
    {"metavar": "NODE", "action": "append", "default": [], "help": "only there; may be repeated"},
    "node",
)
_VOLUME = Argument(("volume",), {"metavar": "WORKLOAD/NAME", "help": "as in volume list"})
_STATUS = Argument(("--status",), {"metavar": "STATUS", "help": "only those with this status"})
_ON_NODE = Argument(
    ("--node",), {"metavar": "NODE", "default": "", "help": "only those on this node"}, "node"
)
_FILE = Argument(
    ("-f", "--file"),
    {"metavar": "FILE", "required": True, "help": "YAML or JSON; - for standard input"},
    "file",
)
_SNAPSHOT = Argument(("file",), {"metavar": "FILE", "help": "the snapshot file"}, "file")
_AGENT = Argument(
    ("--agent",),
    {"metavar": "HOST:PORT", "help": "address of the agent (default: 127.0.0.1:50051)"},
)
_DRY_RUN = Argument(
    ("--dry-run",), {"action": "store_true", "help": "only show what would be removed"}
)
_SHELL = Argument(
    ("shell",), {"choices": ("bash", "zsh", "fish"), "help": "the shell to complete in"}
)
_LIMIT = Argument(
    ("--limit",), {"metavar": "COUNT", "type": int, "default": 0, "help": "only the newest"}
)
_OF_WORKLOAD = Argument(
    ("--workload",),
    {"metavar": "WORKLOAD", "default": "", "help": "only those of this workload"},
    "workload",
)
_WATCH_EVENTS = Argument(
    ("--watch",), {"action": "store_true", "help": "go on with what happens, until interrupted"}
)
_OF_NODE = Argument(
    ("--node",), {"metavar": "NODE", "default": "", "help": "only those of this node"}, "node"
)
_KIND = Argument(
    ("--kind",),
    {
        "metavar": "KIND",
        "action": "append",
        "default": [],
        "help": "only this kind, such as WorkloadFailed; may be given several times",
    },
    "kind",
)
_SINCE = Argument(
    ("--since",), {"metavar": "DURATION", "help": "only the last so long, such as 10m"}
)
_AFTER = Argument(
    ("--after",),
    {"metavar": "SEQUENCE", "type": int, "help": "only those after this one (see -o wide)"},
)
_WHERE = Argument(("node",), {"metavar": "NODE", "help": "id of the node that has it"}, "node")
_DRIFT_TYPE = Argument(
    ("--type",),
    {
        "choices": ("orphan_on_agent", "state_mismatch", "revision_mismatch", "missing_on_agent"),
        "help": "only those of this type",
    },
)

_SERVICE = Argument(
    ("--service",), {"metavar": "SERVICE", "default": "", "help": "of a Compose stack"}
)
_FOLLOW = Argument(
    ("-f", "--follow"), {"action": "store_true", "help": "go on with what is written from now on"}
)
_TAIL = Argument(
    ("--tail",), {"metavar": "LINES", "type": int, "default": 0, "help": "only the last so many"}
)
_PREVIOUS = Argument(
    ("--previous",), {"action": "store_true", "help": "of the run before the present one"}
)
_TIMESTAMPS = Argument(
    ("--timestamps",), {"action": "store_true", "help": "each line with when it was written"}
)
_STDIN = Argument(("-i", "--stdin"), {"action": "store_true", "help": "pass standard input on"})
_TTY = Argument(("-t", "--tty"), {"action": "store_true", "help": "give the command a terminal"})
_COMMAND = Argument(
    ("command",), {"metavar": "-- COMMAND", "nargs": "*", "help": "what to run, and its arguments"}
)
_SORT = Argument(
    ("--sort",),
    {"choices": ("cpu", "memory", "name"), "default": "cpu", "help": "what comes first"},
)
_ONCE = Argument(
    ("--once",), {"action": "store_true", "help": "show once, as when there is no terminal"}
)
_APPLY = Command("apply", "make the workloads of a file so", "changes:apply", (_FILE, _WAIT))
_AUTHORITY = Argument(
    ("--authority",),
    {
        "metavar": "HOST:PORT",
        "help": "where persys-ca is [PERSYS_CA_ADDR, then ca_endpoint] (default: 127.0.0.1:8888)",
    },
)
_JOINS = Argument(
    ("--role",),
    {"required": True, "choices": ("agent", "scheduler", "gateway"), "help": "who is to join"},
)
_ROLE = Argument(
    ("--role",),
    {
        "required": True,
        "choices": ("admin", "operator", "viewer", "agent", "scheduler", "gateway"),
        "help": "what its holder may do",
    },
)
_NAME = Argument(
    ("--name", "--node"), {"metavar": "NAME", "required": True, "help": "of an agent: its node"}
)
_HOST = Argument(
    ("--host",),
    {
        "metavar": "HOST",
        "action": "append",
        "default": [],
        "help": "name or address that the certificate may have; repeatable",
    },
)
_TTL = Argument(("--ttl",), {"metavar": "DURATION", "help": "how long it is good"})
_OUT = Argument(
    ("--out",), {"metavar": "DIRECTORY", "default": ".", "help": "where key and certificate go"}
)
_JOIN_TOKEN = Argument(("token",), {"metavar": "TOKEN", "help": "as `token create` shows it"})
_WHICH = Argument(
    ("which",), {"metavar": "SERIAL", "help": "or ROLE/NAME for all that somebody has"}
)
_REASON = Argument(("--reason",), {"metavar": "TEXT", "default": "", "help": "for the audit"})

GROUPS = (
    Group(
        "node",
        "look at and tend nodes, the machines with an agent",
        (
            Command("list", "all nodes", "nodes:list_nodes", (_STATUS, _WATCH)),
            Command("get", "one node", "nodes:get_node", (_NODE, _WATCH)),
            Command("cordon", "give a node no new work", "upkeep:cordon", (_NODE,)),
            Command("uncordon", "let a node take work again", "upkeep:uncordon", (_NODE,)),
            Command(
                "taint", "keep new work away but for what tolerates it", "upkeep:taint", _TAINT
            ),
            Command(
                "untaint", "take one taint away, or all", "upkeep:untaint", (_NODE, _TAINT_KEY)
            ),
            Command("drain", "move all work off a node", "upkeep:drain", (_NODE, _DEADLINE, _WAIT)),
            Command(
                "confirm-dead",
                "vouch that a silent node runs nothing, so that its data holders may move",
                "upkeep:confirm_dead",
                (_NODE,),
            ),
            Command("remove", "forget a node that has nothing", "upkeep:remove", (_NODE,)),
        ),
    ),
    Group(
        "workload",
        "run, look at and remove workloads",
        (
            _APPLY,
            Command(
                "list", "all workloads", "workloads:list_workloads", (_STATUS, _ON_NODE, _WATCH)
            ),
            Command(
                "get",
                "one workload, and why it is as it is",
                "workloads:get_workload",
                (_WORKLOAD, _WATCH),
            ),
            Command("delete", "remove workloads", "changes:delete", (_WORKLOADS, _WAIT)),
            Command(
                "retry", "try failed workloads again now", "changes:retry", (_WORKLOADS, _WAIT)
            ),
            Command(
                "redeploy",
                "make workloads anew, from what their branch or tag names now",
                "changes:redeploy",
                (_WORKLOADS, _WAIT),
            ),
            Command("start", "run stopped workloads", "changes:start", (_WORKLOADS, _WAIT)),
            Command("stop", "stop workloads and keep them", "changes:stop", (_WORKLOADS, _WAIT)),
        ),
    ),
    Group(
        "cluster",
        "look at the whole",
        (
            Command("summary", "nodes and workloads, counted", "cluster:summary", (_WATCH,)),
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
                (_ON_NODE, _OF_WORKLOAD, _DRIFT_TYPE, _WATCH),
            ),
        ),
    ),
    Group(
        "orphans",
        "copies on nodes that nobody asked for; nothing happens to them by itself",
        (
            Command("list", "all orphans", "drifts:list_orphans", (_ON_NODE, _WATCH)),
            Command(
                "adopt",
                "make an orphan a workload again, without restarting it",
                "drifts:adopt",
                (_WHERE, _WORKLOAD),
            ),
            Command(
                "delete",
                "remove an orphan from its node, with its data unless that is retained",
                "drifts:delete",
                (_WHERE, _WORKLOAD),
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
                (_IMAGE, _IMAGE_SOURCE, _SHA256, _ON_NODES),
            ),
            Command(
                "list", "all images, with their nodes", "images:list_images", (_ON_NODE, _WATCH)
            ),
            Command(
                "remove",
                "remove an image that no workload needs",
                "images:remove",
                (_IMAGE, _ON_NODES),
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
                (_ON_NODE, _OF_WORKLOAD, _WATCH),
            ),
            Command("get", "one volume", "volumes:get", (_VOLUME, _ON_NODE)),
            Command(
                "delete",
                "delete a volume that no workload has, with all that is in it",
                "volumes:delete",
                (_VOLUME, _ON_NODE),
            ),
        ),
    ),
    Group(
        "snapshot",
        "keep the whole state as a file, and go back to it",
        (
            Command("save", "write all that is on record to a file", "snapshot:save", (_SNAPSHOT,)),
            Command(
                "inspect", "check a file and show what is in it", "snapshot:inspect", (_SNAPSHOT,)
            ),
            Command(
                "restore",
                "in recovery mode or into an empty cluster: go back to a file",
                "snapshot:restore",
                (_SNAPSHOT,),
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
            ),
            Command(
                "accept-empty",
                "go on with what the store has; what agents have become orphans",
                "recovery:accept_empty",
            ),
        ),
    ),
    Group(
        "token",
        "let nodes, schedulers and gateways in",
        (
            Command(
                "create",
                "a token that is good for one join",
                "tokens:create",
                (_JOINS, _NAME, _TTL, _HOST, _AUTHORITY),
            ),
            Command("list", "all tokens, the newest first", "tokens:show", (_LIMIT, _AUTHORITY)),
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
                (_ROLE, _NAME, _TTL, _HOST, _OUT, _AUTHORITY),
            ),
            Command(
                "join",
                "a key and a certificate for a token",
                "certificates:use_token",
                (_JOIN_TOKEN, _HOST, _OUT),
            ),
            Command(
                "list",
                "all that were given, the newest first",
                "certificates:show",
                (_LIMIT, _AUTHORITY),
            ),
            Command(
                "revoke",
                "take one back, or all that somebody has",
                "certificates:revoke",
                (_WHICH, _REASON, _AUTHORITY),
            ),
            Command(
                "audit",
                "who gave what to whom, and what was refused",
                "certificates:audit",
                (_LIMIT, _AUTHORITY),
            ),
        ),
    ),
    Group(
        "agent",
        "look at one agent directly, without the scheduler",
        (
            Command("health", "the agent and its runtimes", "agents:health", (_AGENT,)),
            Command(
                "actions",
                "what the agent did, newest first",
                "agents:actions",
                (_AGENT, _OF_WORKLOAD, _LIMIT),
            ),
            Command("list", "the workloads the agent has", "agents:list_workloads", (_AGENT,)),
            Command(
                "gc",
                "remove what nothing on the node refers to any more",
                "agents:collect_garbage",
                (_AGENT, _DRY_RUN),
            ),
        ),
    ),
)

SINGLES = (
    _APPLY,  # what is typed most often has a short way
    Command("explain", "why a workload runs where it does or waits", "explain:show", (_WORKLOAD,)),
    Command("plan", "what applying a file would change; writes nothing", "plan:show", (_FILE,)),
    Command(
        "capacity",
        "how many more would fit, and whether the loss of any node could be borne",
        "capacity:show",
        (_FILE,),
    ),
    Command(
        "events",
        "what happened, oldest first; with --watch also what happens from now on",
        "events:show",
        (_WATCH_EVENTS, _OF_WORKLOAD, _OF_NODE, _KIND, _SINCE, _LIMIT, _AFTER),
    ),
    Command(
        "logs",
        "what a workload writes",
        "logs:show",
        (_WORKLOAD, _FOLLOW, _SINCE, _TAIL, _PREVIOUS, _SERVICE, _TIMESTAMPS),
    ),
    Command(
        "exec",
        "run a command inside a workload",
        "inside:run",
        (_WORKLOAD, _COMMAND, _STDIN, _TTY, _SERVICE),
    ),
    Command(
        "console", "the serial console of a machine", "inside:console", (_WORKLOAD, _TAKE_CONSOLE)
    ),
    Command("top", "what nodes and workloads use now", "top:show", (_SORT, _ONCE, _ON_NODE)),
    Command("stats", "what one workload uses", "top:stats", (_WORKLOAD, _WATCH)),
    Command("completion", "print the completion script of a shell", "completion:script", (_SHELL,)),
    Command("version", "print the version", "version:show"),
)

# Not shown: shells call it while the user types.
COMPLETE = Command("__complete", "", "completion:complete")
