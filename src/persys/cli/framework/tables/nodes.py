"""Commands for nodes: agents, federated clusters and node pools."""

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

_FEDERATION = arg.Argument(
    ("name",), {"metavar": "NAME", "help": "name of the federated node in this cluster"}, "node"
)
_FEDERATION_DIRECTORY = arg.Argument(
    ("--directory",),
    {
        "metavar": "DIRECTORY",
        "default": "/etc/persys/federation",
        "help": "directory of the settings of persys-federation (default: /etc/persys/federation)",
    },
    "file",
)
_FEDERATION_ADD = (
    _FEDERATION,
    arg.Argument(
        ("--remote",),
        {
            "metavar": "URL|HOST:PORT",
            "required": True,
            "help": "URL of a gateway of the remote cluster, several separated by commas, or the address "
            "of a scheduler that runs with -insecure",
        },
    ),
    arg.Argument(
        ("--token-file",),
        {
            "metavar": "FILE",
            "default": "",
            "help": "file with a token of the remote cluster, from `token create --prefix`",
        },
        "file",
    ),
    arg.Argument(
        ("--remote-ca",),
        {
            "metavar": "FILE",
            "default": "",
            "help": "trusted CA certificates of the remote cluster (default: those of the system)",
        },
        "file",
    ),
    arg.Argument(
        ("--remote-cluster",),
        {
            "metavar": "NAME",
            "default": "",
            "help": "cluster behind the gateway (default: the default cluster of the gateway)",
        },
    ),
    arg.Argument(
        ("--tier",),
        {
            "metavar": "N",
            "type": int,
            "default": 1,
            "help": "tier of the node; lower tiers are used first (default: 1)",
        },
    ),
    arg.Argument(
        ("--price",),
        {
            "metavar": "PRICE",
            "type": float,
            "default": 0.0,
            "help": "price per core and hour; in a tier the cheapest node is used first (default: 0)",
        },
    ),
    arg.Argument(
        ("--share",),
        {
            "metavar": "PERCENT",
            "type": int,
            "default": 90,
            "help": "share of the free capacity of the remote cluster to use (default: 90)",
        },
    ),
    arg.Argument(
        ("--cores-max",),
        {
            "metavar": "N",
            "type": int,
            "default": 0,
            "help": "maximum number of cores to use there (default: no limit)",
        },
    ),
    arg.Argument(
        ("--spend-max",),
        {
            "metavar": "PRICE",
            "type": float,
            "default": 0.0,
            "help": "maximum to spend per hour (default: no limit)",
        },
    ),
    _FEDERATION_DIRECTORY,
    arg.AUTHORITY,
)

NODE = Group(
    "node",
    "show and manage nodes, the machines with an agent",
    (
        Command("list", "list nodes", "commands.node:list_nodes", (arg.STATUS, arg.WATCH)),
        Command("get", "show one node", "commands.node:get_node", (arg.NODE, arg.WATCH)),
        Command("cordon", "mark a node as unschedulable", "commands.node:cordon", (arg.NODE,)),
        Command("uncordon", "mark a node as schedulable", "commands.node:uncordon", (arg.NODE,)),
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
)

FEDERATION = Group(
    "federation",
    "use another cluster as a node of this cluster",
    (
        Command(
            "add",
            "check the remote cluster, issue a certificate, and write the settings of persys-federation",
            "commands.federation:add",
            _FEDERATION_ADD,
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
            (_FEDERATION, arg.WATCH),
        ),
        Command(
            "remove",
            "drain a federated node, and remove it from the cluster",
            "commands.federation:remove",
            (_FEDERATION, _FEDERATION_DIRECTORY),
        ),
    ),
)

NODEPOOL = Group(
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
)

AGENT = Group(
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
)
