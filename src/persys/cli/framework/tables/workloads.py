"""Commands for workloads, and for what they use: volumes and images."""

from collections.abc import Mapping
from typing import Any

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

_REPEATED: Mapping[str, Any] = {"action": "append", "default": []}
_RUN = (
    arg.Argument(
        ("subject",),
        {
            "metavar": "NAME",
            "nargs": "?",
            "default": "",
            "help": "name of the workload; with --name, the image",
        },
    ),
    arg.COMMAND,
    arg.Argument(
        ("--image",), {"metavar": "IMAGE", "default": "", "help": "image of the container"}
    ),
    arg.Argument(("--name",), {"metavar": "NAME", "default": "", "help": "name of the workload"}),
    arg.Argument(
        ("-p", "--publish"),
        {
            "metavar": "[HOST:]CONTAINER",
            **_REPEATED,
            "help": "publish a port, for example 8080:80 or 53:53/udp; repeatable",
        },
    ),
    arg.Argument(
        ("-e", "--env"),
        {"metavar": "NAME=VALUE", **_REPEATED, "help": "environment variable; repeatable"},
    ),
    arg.Argument(
        ("-v", "--volume"),
        {
            "metavar": "SOURCE:/PATH",
            **_REPEATED,
            "help": "mount a managed volume (NAME:/path) or a path of the node (/host:/path), with :ro for "
            "read-only; repeatable",
        },
    ),
    arg.Argument(
        ("-l", "--label"),
        {"metavar": "NAME=VALUE", **_REPEATED, "help": "label of the container; repeatable"},
    ),
    arg.Argument(
        ("--cpu", "--cpus"),
        {"metavar": "CORES", "default": "", "help": "reserved cores, for example 0.5 or 500m"},
    ),
    arg.Argument(
        ("-m", "--memory"),
        {"metavar": "SIZE", "default": "", "help": "reserved memory, for example 256m or 2g"},
    ),
    arg.Argument(
        ("--restart",),
        {
            "metavar": "POLICY",
            "default": "",
            "help": "no, always, on-failure[:N] or unless-stopped (default)",
        },
    ),
    arg.Argument(
        ("--health",),
        {
            "metavar": "CHECK",
            "default": "",
            "help": "health check: http:PORT/PATH, tcp:PORT, image or none",
        },
    ),
    arg.Argument(
        ("--health-cmd",),
        {"metavar": "COMMAND", "default": "", "help": "health check: a shell command"},
    ),
    arg.Argument(
        ("--pull",),
        {"choices": ("always", "missing", "never"), "help": "when to pull the image"},
    ),
    arg.Argument(
        ("--replicas",),
        {"metavar": "N", "type": int, "default": 0, "help": "run a set with this many members"},
    ),
    arg.Argument(
        ("-d", "--detach"),
        {
            "action": "store_true",
            "help": "accepted for docker: workloads always run in the background",
        },
    ),
    arg.SHOW_CHANGES,
    arg.WAIT,
)

APPLY = Command(
    "apply",
    "create or update workloads, sets and jobs from files",
    "commands.workload:apply",
    (*arg.SPEC_FILES, arg.SHOW_CHANGES, arg.WAIT),
)

RUN = Command(
    "run",
    "run a container from an image; use apply for files, stacks and VMs",
    "commands.run:start",
    _RUN,
)

EDIT = Command(
    "edit",
    "edit a workload, set or job in $EDITOR, show the changes and apply them",
    "commands.edit:edit",
    (arg.WORKLOAD, arg.YES, arg.WAIT),
)

WORKLOAD = Group(
    "workload",
    "run, show and delete workloads",
    (
        APPLY,
        Command(
            "list",
            "list workloads",
            "commands.workload:list_workloads",
            (arg.OWNER, arg.STATUS, arg.ON_NODE, arg.WATCH),
        ),
        Command(
            "get",
            "show one workload, with the reason for its status; also a set or job",
            "commands.workload:get_workload",
            (arg.WORKLOAD, arg.WATCH),
        ),
        Command(
            "delete",
            "delete workloads, sets and jobs, by id or of files",
            "commands.workload:delete",
            (
                arg.OPTIONAL_WORKLOADS,
                arg.OPTIONAL_FILES,
                *arg.SPEC_FILES[1:],
                arg.SHOW_DELETED,
                arg.WAIT,
            ),
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
        Command(
            "restart",
            "stop workloads and start them again; the members of a set are replaced as in an update",
            "commands.workload:restart",
            (arg.WORKLOADS, arg.WAIT),
        ),
    ),
)

IMAGE = Group(
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
)

VOLUME = Group(
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
)

INIT = Command(
    "init",
    "write a commented spec file of a type, to start from",
    "commands.init:create",
    (arg.EXAMPLE_TYPE, arg.EXAMPLE_FILE),
)

EXPLAIN = Command(
    "explain",
    "explain why a workload, or a member of a set, runs on its node or is pending",
    "commands.explain:show",
    (arg.WORKLOAD,),
)

PLAN = Command(
    "plan",
    "show what applying a file would change; writes nothing",
    "commands.plan:show",
    arg.SPEC_FILES,
)

CAPACITY = Command(
    "capacity",
    "show how many more copies fit, and whether the cluster tolerates the loss of any one node",
    "commands.capacity:show",
    arg.SPEC_FILES,
)

SCHEMA = Command(
    "schema", "print the JSON schema of spec files, for editors", "commands.schema:show"
)

GITOPS = Command("gitops", "list workloads that follow a Git branch", "commands.gitops:show")

LOGS = Command(
    "logs",
    "show the output of a workload, or of all members of a set",
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
)

EXEC = Command(
    "exec",
    "run a command inside a workload",
    "commands.exec:run",
    (arg.WORKLOAD, arg.COMMAND, arg.STDIN, arg.TTY, arg.SERVICE),
)

CONSOLE = Command(
    "console",
    "attach to the serial console of a VM",
    "commands.exec:console",
    (arg.WORKLOAD, arg.TAKE_CONSOLE),
)

PORT_FORWARD = Command(
    "port-forward",
    "forward local ports to a workload",
    "commands.port_forward:run",
    (arg.WORKLOAD, arg.PORTS, arg.LOCAL_ADDRESS, arg.SERVICE),
)

CP = Command(
    "cp",
    "copy files and directories to or from a container",
    "commands.cp:run",
    (arg.COPY_SOURCE, arg.COPY_TARGET),
)

TOP = Command(
    "top",
    "show the resource usage of nodes and workloads",
    "commands.top:show",
    (arg.SORT, arg.ONCE, arg.ON_NODE),
)

STATS = Command(
    "stats",
    "show the resource usage of one workload",
    "commands.top:stats",
    (arg.WORKLOAD, arg.WATCH),
)
