"""Roles and permissions. The module has no imports of its own, for the start-up time of persysctl."""

from enum import StrEnum

NAMES = "persys.internal"  # the domain of the names by which cluster components identify each other


class Role(StrEnum):
    SCHEDULER = "scheduler"
    AGENT = "agent"  # its name is the id of its node
    GATEWAY = "gateway"
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    CA = "ca"  # the server certificate of persys-ca


class Permission(StrEnum):
    """A permission. Every RPC of either service needs exactly one."""

    READ = "read"  # list and show
    LOGS = "logs"  # read the logs of workloads
    WORKLOADS = "workloads"  # apply, delete, retry
    EXEC = "exec"  # run commands inside workloads
    NODES = "nodes"  # cordon, drain, taint, remove; adopt and delete orphans
    DATA = "data"  # images and volumes
    TOKENS = "tokens"  # join tokens, certificates and API tokens
    SECRETS = "secrets"  # put and delete; secrets cannot be read back
    RECOVERY = "recovery"  # snapshots, which contain everything, and the end of recovery mode
    SUGGEST = "suggest"  # automation
    REPORT = "report"  # act as a node: register, heartbeat, stream
    ORDER = "order"  # send orders to agents
    ANYONE = "anyone"  # any valid certificate: whoami, health
