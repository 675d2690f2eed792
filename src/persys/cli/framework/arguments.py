"""The arguments of persysctl's commands as data; each is defined once and shared by its commands."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Argument(NamedTuple):
    names: tuple[str, ...]
    kwargs: Mapping[str, Any]  # as argparse's add_argument takes it
    completes: str = (
        ""  # workload, set, job, owner (set or job), run, service, node, file, kind, context
    )

    @property
    def is_option(self) -> bool:
        return self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool:
        return self.kwargs.get("action") != "store_true"

    @property
    def repeats(self) -> bool:
        """Each use adds a value. Other options with a value are rejected when given twice."""
        return self.kwargs.get("action") == "append"


_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+|\d+(\.\d+)?")


def join_wait_value(words: Sequence[str]) -> list[str]:
    """Rewrite `--wait 30s` to `--wait=30s`, and a --wait without a duration to `--wait=`.

    argparse would read any next word, which may be a workload id, as the value of --wait.
    """
    joined: list[str] = []
    for word in words:
        if joined[-1:] == ["--wait="] and _DURATION.fullmatch(word):
            joined[-1] += word
        else:
            joined.append("--wait=" if word == "--wait" else word)
    return joined


def split_names(parts: Iterable[str]) -> list[str]:
    """Names from an option that takes several, separated by commas, and is repeatable."""
    return [name.strip() for part in parts for name in part.split(",") if name.strip()]


OUTPUT_FORMATS = ("table", "wide", "json", "yaml", "name")

GLOBAL = (
    Argument(
        ("--scheduler",),
        {
            "metavar": "HOST:PORT",
            "help": "address of the scheduler, several separated by commas, or the name of an SRV record "
            "[PERSYS_GRPC_ENDPOINT, then grpc_endpoint of ~/.persys/config.yaml] "
            "(default: 127.0.0.1:8085)",
        },
    ),
    Argument(
        ("--api",),
        {
            "metavar": "URL",
            "help": "use a gateway instead of a scheduler [PERSYS_API_ENDPOINT, then api_endpoint, with "
            "PERSYS_TRANSPORT or transport: http] (default: https://localhost:8551)",
        },
    ),
    Argument(
        ("--cluster",),
        {
            "metavar": "NAME",
            "help": "cluster behind the gateway [PERSYS_CLUSTER, then cluster]",
        },
    ),
    Argument(
        ("--context",),
        {
            "metavar": "NAME",
            "help": "context in ~/.persys/config.yaml [PERSYS_CONTEXT, then current_context]",
        },
        "context",
    ),
    Argument(
        ("--timeout",),
        {
            "metavar": "DURATION",
            "help": "timeout of each request, and of the whole wait with --wait (default: 10s, 5m)",
        },
    ),
    Argument(
        ("--insecure",),
        {
            "action": "store_true",
            "default": None,
            "help": "connect without TLS, to a scheduler that runs with -insecure "
            "[PERSYS_INSECURE, then grpc_insecure]",
        },
    ),
    Argument(
        ("--ca",),
        {"metavar": "FILE", "help": "trusted CA certificates [PERSYS_TLS_CA, then ca_cert_path]"},
        "file",
    ),
    Argument(
        ("--cert",),
        {"metavar": "FILE", "help": "client certificate [PERSYS_TLS_CERT, then cert_path]"},
        "file",
    ),
    Argument(
        ("--key",),
        {"metavar": "FILE", "help": "client key [PERSYS_TLS_KEY, then key_path]"},
        "file",
    ),
    Argument(
        ("-o", "--output"), {"choices": OUTPUT_FORMATS, "help": "output format (default: table)"}
    ),
)

WATCH = Argument(
    ("-w", "--watch"), {"action": "store_true", "help": "update the output on every change"}
)
WAIT = Argument(
    ("--wait",),
    {
        "metavar": "DURATION",
        "nargs": "?",
        "const": "",
        "help": "wait until the desired state is reached, a rollout has ended, or it fails (default: 5m)",
    },
)
DEADLINE = Argument(
    ("--deadline",),
    {"metavar": "DURATION", "help": "report the drain as overdue if the node is not empty by then"},
)
NODE = Argument(("id",), {"metavar": "NODE", "help": "id of the node"}, "node")
TAINT = (
    NODE,
    Argument(
        ("taints",),
        {
            "metavar": "KEY[=VALUE]",
            "nargs": "+",
            "help": "taint to add, for example gpu or team=ml",
        },
    ),
)
TAINT_KEY = Argument(
    ("taint_key",),
    {
        "metavar": "KEY",
        "nargs": "?",
        "default": "",
        "help": "key of the taint (default: all taints)",
    },
)
WORKLOAD = Argument(("id",), {"metavar": "WORKLOAD", "help": "id of the workload"}, "workload")
WORKLOADS = Argument(
    ("ids",), {"metavar": "WORKLOAD", "nargs": "+", "help": "ids of workloads"}, "workload"
)
OWNER = Argument(
    ("owner",),
    {
        "metavar": "SET",
        "nargs": "?",
        "default": "",
        "help": "only the members of this set or job",
    },
    "owner",
)
OPTIONAL_WORKLOADS = WORKLOADS._replace(kwargs={**WORKLOADS.kwargs, "nargs": "*"})
YES = Argument(("-y", "--yes"), {"action": "store_true", "help": "apply without asking"})
TAKE_CONSOLE = Argument(
    ("--force",), {"action": "store_true", "help": "disconnect the current session"}
)
IMAGE = Argument(("name",), {"metavar": "NAME", "help": "name of the image, for example debian-12"})
IMAGE_SOURCE = Argument(
    ("source",),
    {
        "metavar": "FILE|URL",
        "help": "a local file, or an http, https or file: URL that the nodes fetch",
    },
    "file",
)
SHA256 = Argument(
    ("--sha256",),
    {"metavar": "HEX", "default": "", "help": "expected checksum of the file"},
)
ON_NODES = Argument(
    ("--node",),
    {"metavar": "NODE", "action": "append", "default": [], "help": "only on this node; repeatable"},
    "node",
)
VOLUME = Argument(
    ("volume",), {"metavar": "WORKLOAD/NAME", "help": "the volume, as listed by `volume list`"}
)
STATUS = Argument(("--status",), {"metavar": "STATUS", "help": "only those with this status"})
ON_NODE = Argument(
    ("--node",), {"metavar": "NODE", "default": "", "help": "only those on this node"}, "node"
)
FILES = Argument(
    ("-f", "--file"),
    {
        "metavar": "FILE",
        "action": "append",
        "required": True,
        "help": "spec or Compose file, directory of them, URL, or - for standard input; repeatable",
    },
    "file",
)
OPTIONAL_FILES = FILES._replace(kwargs={**FILES.kwargs, "required": False, "default": []})
RECURSIVE = Argument(
    ("-R", "--recursive"),
    {"action": "store_true", "help": "include the directories in a directory"},
)
STACK_ID = Argument(
    ("--id", "--name"),
    {"metavar": "ID", "default": "", "help": "workload id for a Compose file (default: its name)"},
)
INTERPOLATE = Argument(
    ("--interpolate",),
    {"action": "store_true", "help": "replace ${NAME} by environment variables"},
)
ENV_FILE = Argument(
    ("--env-file",),
    {
        "metavar": "FILE",
        "default": "",
        "help": "replace ${NAME} by the variables of a file with lines NAME=VALUE",
    },
    "file",
)
SET = Argument(
    ("--set",),
    {
        "metavar": "PATH=VALUE",
        "action": "append",
        "default": [],
        "help": "set a field of each workload, for example container.image=nginx:1.27; repeatable",
    },
)
SPEC_FILES = (FILES, RECURSIVE, STACK_ID, INTERPOLATE, ENV_FILE, SET)
SUGGESTION = Argument(
    ("-f", "--file"),
    {
        "metavar": "FILE",
        "required": True,
        "help": "suggestion in YAML or JSON, or - for standard input",
    },
    "file",
)
POOL_FILE = Argument(
    ("-f", "--file"),
    {
        "metavar": "FILE",
        "required": True,
        "help": "node pool in YAML or JSON, or - for standard input",
    },
    "file",
)
POOL = Argument(("pool",), {"metavar": "POOL", "help": "name of the node pool"})
SNAPSHOT = Argument(("file",), {"metavar": "FILE", "help": "the snapshot file"}, "file")
AGENT = Argument(
    ("--agent",),
    {
        "metavar": "HOST:PORT",
        "help": "address of the agent [PERSYS_AGENT_ADDR, then agent_endpoint] "
        "(default: 127.0.0.1:50051)",
    },
)
SHOW_CHANGES = Argument(
    ("--dry-run",), {"action": "store_true", "help": "only show what would change"}
)
SHOW_DELETED = Argument(
    ("--dry-run",), {"action": "store_true", "help": "only show what would be deleted"}
)
DRY_RUN = Argument(
    ("--dry-run",), {"action": "store_true", "help": "only show what would be removed"}
)
PREVIEW = Argument(
    ("--dry-run",), {"action": "store_true", "help": "only show what would be restored"}
)
ALLOW_SECRETS = Argument(
    ("--allow-secrets",),
    {
        "metavar": "NAME,...",
        "action": "append",
        "default": [],
        "help": "secrets that the node's report names and that may be sent to the node",
    },
)
SUGGESTION_ID = Argument(("id",), {"metavar": "ID", "help": "id of the suggestion"})
DECISION = Argument(
    ("--decision",),
    {
        "choices": ("accepted", "rejected", "pending"),
        "default": "",
        "help": "only those with this decision",
    },
)
EXAMPLE_TYPES = ("container", "compose", "vm", "git", "set", "job", "service", "nodepool")
EXAMPLE_TYPE = Argument(
    ("type",), {"choices": EXAMPLE_TYPES, "nargs": "?", "help": "type of the file (default: all)"}
)
EXAMPLE_FILE = Argument(
    ("-o", "--out"),
    {
        "metavar": "FILE",
        "default": "",
        "help": "file to write, or - for standard output (default: TYPE.yaml)",
    },
    "file",
)
TOPIC = Argument(
    ("topic",),
    {"metavar": "COMMAND", "nargs": "*", "help": "a command, `connection` or `aliases`"},
)
SHELL = Argument(("shell",), {"choices": ("bash", "zsh", "fish"), "help": "the shell"})
LIMIT = Argument(
    ("--limit",),
    {"metavar": "COUNT", "type": int, "default": 0, "help": "show at most this many, the newest"},
)
OF_WORKLOAD = Argument(
    ("--workload",),
    {"metavar": "WORKLOAD", "default": "", "help": "only those of this workload"},
    "workload",
)
WATCH_EVENTS = Argument(
    ("-w", "--watch"), {"action": "store_true", "help": "stream new events until interrupted"}
)
OF_NODE = Argument(
    ("--node",), {"metavar": "NODE", "default": "", "help": "only those of this node"}, "node"
)
KIND = Argument(
    ("--kind",),
    {
        "metavar": "KIND",
        "action": "append",
        "default": [],
        "help": "only this kind, for example WorkloadFailed; repeatable",
    },
    "kind",
)
SINCE = Argument(
    ("--since",), {"metavar": "DURATION", "help": "only newer than this, for example 10m"}
)
AFTER = Argument(
    ("--after",),
    {
        "metavar": "SEQUENCE",
        "type": int,
        "help": "only those after this sequence number (see -o wide)",
    },
)
WHERE = Argument(("node",), {"metavar": "NODE", "help": "id of the node that runs it"}, "node")
DRIFT_TYPE = Argument(
    ("--type",),
    {
        "choices": ("orphan_on_agent", "state_mismatch", "revision_mismatch", "missing_on_agent"),
        "help": "only those of this type",
    },
)

SERVICE = Argument(
    ("-c", "--service"), {"metavar": "SERVICE", "default": "", "help": "service of a Compose stack"}
)
PORTS = Argument(
    ("ports",),
    {
        "metavar": "[LOCAL:]REMOTE",
        "nargs": "+",
        "help": "port of the workload, for example 8080:80; without LOCAL, or with 0, a free port is used",
    },
)
LOCAL_ADDRESS = Argument(
    ("--address",),
    {
        "metavar": "ADDRESS",
        "default": "127.0.0.1",
        "help": "local address to listen on (default: 127.0.0.1)",
    },
)
_COPY_PATH = "WORKLOAD:/PATH, WORKLOAD/SERVICE:/PATH or a local path"
COPY_SOURCE = Argument(
    ("source",), {"metavar": "SOURCE", "help": f"{_COPY_PATH}; - for a tar archive from stdin"}
)
COPY_TARGET = Argument(
    ("target",), {"metavar": "TARGET", "help": f"{_COPY_PATH}; - for a tar archive to stdout"}
)
FOLLOW = Argument(("-f", "--follow"), {"action": "store_true", "help": "stream new output"})
TAIL = Argument(
    ("-n", "--tail"), {"metavar": "LINES", "type": int, "default": 0, "help": "only the last lines"}
)
PREVIOUS = Argument(
    ("-p", "--previous"), {"action": "store_true", "help": "show the output of the previous run"}
)
TIMESTAMPS = Argument(
    ("-t", "--timestamps"), {"action": "store_true", "help": "prefix each line with its time"}
)
RAW = Argument(
    ("--raw",),
    {
        "action": "store_true",
        "help": "write control characters to the terminal unescaped",
    },
)
STDIN = Argument(
    ("-i", "--stdin"), {"action": "store_true", "help": "pass standard input to the command"}
)
TTY = Argument(("-t", "--tty"), {"action": "store_true", "help": "allocate a terminal"})
COMMAND = Argument(
    ("command",),
    {"metavar": "-- COMMAND", "nargs": "*", "help": "command to run, with its arguments"},
)
SORT = Argument(
    ("--sort",),
    {"choices": ("cpu", "memory", "name"), "default": "cpu", "help": "sort key"},
)
ONCE = Argument(
    ("--once",), {"action": "store_true", "help": "print once and exit, as without a terminal"}
)
AUTHORITY = Argument(
    ("--authority",),
    {
        "metavar": "HOST:PORT",
        "help": "address of persys-ca [PERSYS_CA_ADDR, then ca_endpoint] (default: 127.0.0.1:8888)",
    },
)
ROLE = Argument(
    ("--role",),
    {
        "required": True,
        "choices": ("admin", "operator", "viewer", "agent", "scheduler", "gateway"),
        "help": "role of the holder",
    },
)
NAME = Argument(
    ("--name", "--node"),
    {"metavar": "NAME", "required": True, "help": "name of the holder; for an agent, its node"},
)
HOST = Argument(
    ("--host",),
    {
        "metavar": "HOST",
        "action": "append",
        "default": [],
        "help": "DNS name or IP address for the certificate; repeatable",
    },
)
TTL = Argument(("--ttl",), {"metavar": "DURATION", "help": "period of validity"})
OUT = Argument(
    ("--out",),
    {"metavar": "DIRECTORY", "default": ".", "help": "directory for the key and the certificate"},
)
ALLOW = Argument(
    ("--allow",),
    {
        "metavar": "PERMISSION,...",
        "action": "append",
        "default": [],
        "help": "for a user token: limit the role to these permissions, for example read,logs; repeatable",
    },
)
PREFIX = Argument(
    ("--prefix",),
    {
        "metavar": "CLUSTER--",
        "default": "",
        "help": "for a user token: only names of workloads and secrets with this prefix, for example home--",
    },
)
TOKEN_KIND = Argument(("--kind",), {"choices": ("person", "join"), "help": "only this kind"})
TOKEN_ID = Argument(
    ("token_id",), {"metavar": "ID", "help": "id of the token, as listed by `token list`"}
)
JOIN_TOKEN = Argument(
    ("token",),
    {
        "metavar": "TOKEN",
        "help": "join token, as printed by `token create`; -: from standard input",
    },
)
SERIAL_OR_IDENTITY = Argument(
    ("which",),
    {
        "metavar": "SERIAL",
        "help": "serial number, or ROLE/NAME for all certificates of an identity",
    },
)
REASON = Argument(
    ("--reason",), {"metavar": "TEXT", "default": "", "help": "reason for the audit log"}
)
CONTEXT = Argument(("name",), {"metavar": "CONTEXT", "help": "name of the context"}, "context")
OPTIONAL_CONTEXT = Argument(
    ("name",),
    {
        "metavar": "CONTEXT",
        "nargs": "?",
        "default": "",
        "help": "name of the context (default: the current one)",
    },
    "context",
)
USE = Argument(("--use",), {"action": "store_true", "help": "make it the current context"})
TOKEN_FILE = Argument(
    ("--token-file",),
    {"metavar": "FILE", "help": "file with a token to use instead of a certificate"},
    "file",
)
SECRET = Argument(("secret",), {"metavar": "NAME", "help": "name of the secret"})
FROM_FILE = Argument(
    ("--from-file",), {"metavar": "FILE", "help": "file whose content is the value"}, "file"
)
FROM_ENV = Argument(
    ("--from-env",),
    {
        "metavar": "VARIABLE",
        "help": "environment variable with the value (default: standard input)",
    },
)
RECORD_KEY = Argument(
    ("record",), {"metavar": "KEY", "help": "key of the record, as listed by `record list`"}
)
EXPORT = Argument(
    ("--export",), {"metavar": "FILE", "help": "write the stored bytes to a new file"}, "file"
)
RECORD_VERSION = Argument(
    ("--record-version",),
    {"metavar": "N", "type": int, "help": "delete only this version, as printed by `record get`"},
)
CONFIRM = Argument(
    ("--confirm",),
    {"action": "store_true", "help": "required: the record is lost unless it was exported"},
)
STATE_DIRECTORY = Argument(
    ("--state-dir",),
    {"metavar": "DIRECTORY", "help": "state directory (default: below /var/lib/persys)"},
    "file",
)
