"""The arguments of persysctl's commands as data. What several commands take is said here once."""

import re
from collections.abc import Mapping, Sequence
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

    @property
    def repeats(self) -> bool:
        """Each use adds a value. Any other option with a value is refused when it is given twice."""
        return self.how.get("action") == "append"


_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+|\d+(\.\d+)?")


def join_wait(words: Sequence[str]) -> list[str]:
    """The words with `--wait 30s` as `--wait=30s`, and a --wait without a duration as `--wait=`.

    argparse would take any next word, which may be a workload, for the value of --wait.
    """
    joined: list[str] = []
    for word in words:
        if joined[-1:] == ["--wait="] and _DURATION.fullmatch(word):
            joined[-1] += word
        else:
            joined.append("--wait=" if word == "--wait" else word)
    return joined


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
        ("--api",),
        {
            "metavar": "URL",
            "help": "a gateway instead of a scheduler [PERSYS_API_ENDPOINT, then api_endpoint, with "
            "PERSYS_TRANSPORT or transport: http] (default: https://localhost:8551)",
        },
    ),
    Argument(
        ("--cluster",),
        {
            "metavar": "NAME",
            "help": "which one behind the gateway [PERSYS_CLUSTER, then cluster]",
        },
    ),
    Argument(
        ("--context",),
        {
            "metavar": "NAME",
            "help": "of ~/.persys/config.yaml [PERSYS_CONTEXT, then current_context]",
        },
        "context",
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

WATCH = Argument(("--watch",), {"action": "store_true", "help": "show again on every change"})
WAIT = Argument(
    ("--wait",),
    {
        "metavar": "DURATION",
        "nargs": "?",
        "const": "",
        "help": "wait until the desired state is reached or the workload fails (default: 5m)",
    },
)
DEADLINE = Argument(
    ("--deadline",),
    {"metavar": "DURATION", "help": "when it counts as overdue if the node is not empty"},
)
NODE = Argument(("id",), {"metavar": "NODE", "help": "id of the node"}, "node")
TAINT = (
    NODE,
    Argument(
        ("taints",), {"metavar": "KEY[=VALUE]", "nargs": "+", "help": "such as gpu or team=ml"}
    ),
)
TAINT_KEY = Argument(
    ("taint_key",), {"metavar": "KEY", "nargs": "?", "default": "", "help": "none: all of them"}
)
WORKLOAD = Argument(("id",), {"metavar": "WORKLOAD", "help": "id of the workload"}, "workload")
WORKLOADS = Argument(
    ("ids",), {"metavar": "WORKLOAD", "nargs": "+", "help": "ids of workloads"}, "workload"
)
TAKE_CONSOLE = Argument(
    ("--force",), {"action": "store_true", "help": "take it from whoever has it"}
)
IMAGE = Argument(("name",), {"metavar": "NAME", "help": "such as debian-12"})
IMAGE_SOURCE = Argument(
    ("source",),
    {
        "metavar": "FILE|URL",
        "help": "a file here, or an http, https or file: address that the nodes read themselves",
    },
    "file",
)
SHA256 = Argument(
    ("--sha256",),
    {"metavar": "HEX", "default": "", "help": "refuse a file with another checksum"},
)
ON_NODES = Argument(
    ("--node",),
    {"metavar": "NODE", "action": "append", "default": [], "help": "only there; may be repeated"},
    "node",
)
VOLUME = Argument(("volume",), {"metavar": "WORKLOAD/NAME", "help": "as in volume list"})
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
        "help": "spec or Compose file, directory of such files, or - for standard input; repeatable",
    },
    "file",
)
STACK_ID = Argument(
    ("--id",),
    {"metavar": "ID", "default": "", "help": "workload id for a Compose file (default: its name)"},
)
SUGGESTION = Argument(
    ("-f", "--file"),
    {"metavar": "FILE", "required": True, "help": "YAML or JSON; - for standard input"},
    "file",
)
SNAPSHOT = Argument(("file",), {"metavar": "FILE", "help": "the snapshot file"}, "file")
AGENT = Argument(
    ("--agent",),
    {
        "metavar": "HOST:PORT",
        "help": "address of the agent [PERSYS_AGENT_ADDR, then agent_endpoint] "
        "(default: 127.0.0.1:50051)",
    },
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
    {"choices": ("accepted", "rejected", "pending"), "default": "", "help": "only these"},
)
SHELL = Argument(
    ("shell",), {"choices": ("bash", "zsh", "fish"), "help": "the shell to complete in"}
)
LIMIT = Argument(
    ("--limit",), {"metavar": "COUNT", "type": int, "default": 0, "help": "only the newest"}
)
OF_WORKLOAD = Argument(
    ("--workload",),
    {"metavar": "WORKLOAD", "default": "", "help": "only those of this workload"},
    "workload",
)
WATCH_EVENTS = Argument(
    ("--watch",), {"action": "store_true", "help": "go on with what happens, until interrupted"}
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
        "help": "only this kind, such as WorkloadFailed; may be given several times",
    },
    "kind",
)
SINCE = Argument(
    ("--since",), {"metavar": "DURATION", "help": "only the last so long, such as 10m"}
)
AFTER = Argument(
    ("--after",),
    {"metavar": "SEQUENCE", "type": int, "help": "only those after this one (see -o wide)"},
)
WHERE = Argument(("node",), {"metavar": "NODE", "help": "id of the node that has it"}, "node")
DRIFT_TYPE = Argument(
    ("--type",),
    {
        "choices": ("orphan_on_agent", "state_mismatch", "revision_mismatch", "missing_on_agent"),
        "help": "only those of this type",
    },
)

SERVICE = Argument(
    ("--service",), {"metavar": "SERVICE", "default": "", "help": "of a Compose stack"}
)
FOLLOW = Argument(
    ("-f", "--follow"), {"action": "store_true", "help": "go on with what is written from now on"}
)
TAIL = Argument(
    ("--tail",), {"metavar": "LINES", "type": int, "default": 0, "help": "only the last so many"}
)
PREVIOUS = Argument(
    ("--previous",), {"action": "store_true", "help": "of the run before the present one"}
)
TIMESTAMPS = Argument(
    ("--timestamps",), {"action": "store_true", "help": "each line with when it was written"}
)
RAW = Argument(
    ("--raw",),
    {
        "action": "store_true",
        "help": "write control characters of the workload to the terminal as they are",
    },
)
STDIN = Argument(("-i", "--stdin"), {"action": "store_true", "help": "pass standard input on"})
TTY = Argument(("-t", "--tty"), {"action": "store_true", "help": "give the command a terminal"})
COMMAND = Argument(
    ("command",), {"metavar": "-- COMMAND", "nargs": "*", "help": "what to run, and its arguments"}
)
SORT = Argument(
    ("--sort",),
    {"choices": ("cpu", "memory", "name"), "default": "cpu", "help": "what comes first"},
)
ONCE = Argument(
    ("--once",), {"action": "store_true", "help": "show once, as when there is no terminal"}
)
AUTHORITY = Argument(
    ("--authority",),
    {
        "metavar": "HOST:PORT",
        "help": "where persys-ca is [PERSYS_CA_ADDR, then ca_endpoint] (default: 127.0.0.1:8888)",
    },
)
ROLE = Argument(
    ("--role",),
    {
        "required": True,
        "choices": ("admin", "operator", "viewer", "agent", "scheduler", "gateway"),
        "help": "what its holder may do",
    },
)
NAME = Argument(
    ("--name", "--node"), {"metavar": "NAME", "required": True, "help": "of an agent: its node"}
)
HOST = Argument(
    ("--host",),
    {
        "metavar": "HOST",
        "action": "append",
        "default": [],
        "help": "name or address that the certificate may have; repeatable",
    },
)
TTL = Argument(("--ttl",), {"metavar": "DURATION", "help": "how long it is good"})
OUT = Argument(
    ("--out",), {"metavar": "DIRECTORY", "default": ".", "help": "where key and certificate go"}
)
ALLOW = Argument(
    ("--allow",),
    {
        "metavar": "DEED,...",
        "action": "append",
        "default": [],
        "help": "of a person: only these of what the role allows, such as read,logs; repeatable",
    },
)
TOKEN_KIND = Argument(("--kind",), {"choices": ("person", "join"), "help": "only this kind"})
TOKEN_ID = Argument(("token_id",), {"metavar": "ID", "help": "as in token list"})
JOIN_TOKEN = Argument(("token",), {"metavar": "TOKEN", "help": "as `token create` shows it"})
WHICH = Argument(
    ("which",), {"metavar": "SERIAL", "help": "or ROLE/NAME for all certificates of an identity"}
)
REASON = Argument(("--reason",), {"metavar": "TEXT", "default": "", "help": "for the audit"})
CONTEXT = Argument(("name",), {"metavar": "CONTEXT", "help": "name of the context"}, "context")
SOME_CONTEXT = Argument(
    ("name",),
    {"metavar": "CONTEXT", "nargs": "?", "default": "", "help": "none: the one in use"},
    "context",
)
USE = Argument(("--use",), {"action": "store_true", "help": "use it from now on"})
TOKEN_FILE = Argument(
    ("--token-file",),
    {"metavar": "FILE", "help": "with a token that is shown instead of a certificate"},
    "file",
)
SECRET = Argument(("secret",), {"metavar": "NAME", "help": "name of the secret"})
FROM_FILE = Argument(
    ("--from-file",), {"metavar": "FILE", "help": "whose content is the value, as it is"}, "file"
)
FROM_ENV = Argument(
    ("--from-env",), {"metavar": "VARIABLE", "help": "whose value it is; else standard input"}
)
RECORD_KEY = Argument(("record",), {"metavar": "KEY", "help": "as in record list"})
EXPORT = Argument(
    ("--export",), {"metavar": "FILE", "help": "write the stored bytes to a new file"}, "file"
)
RECORD_VERSION = Argument(
    ("--record-version",),
    {"metavar": "N", "type": int, "help": "delete only this version, as record get shows it"},
)
CONFIRM = Argument(
    ("--confirm",), {"action": "store_true", "help": "needed: the record is lost unless exported"}
)
KEPT_IN = Argument(
    ("--state-dir",),
    {"metavar": "DIRECTORY", "help": "where state is kept, if not below /var/lib/persys"},
    "file",
)
