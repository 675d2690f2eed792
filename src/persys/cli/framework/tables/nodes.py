"""Commands for nodes: agents, federated clusters and node pools."""

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

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
