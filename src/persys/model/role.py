"""Roles and permissions. Without other imports, so that persysctl can use them at start-up."""

from enum import StrEnum

NAMES = "persys.internal"  # under it are the names by which the parts of a cluster know each other


class Role(StrEnum):
    SCHEDULER = "scheduler"
    AGENT = "agent"  # its name is the id of its node
    GATEWAY = "gateway"
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    CA = "ca"  # the authority's own certificate, as a server


class Deed(StrEnum):
    """A permission. Every RPC of either service needs exactly one."""

    READ = "read"  # look at what there is
    LOGS = "logs"  # read what workloads write
    WORKLOADS = "workloads"  # apply, delete, retry
    EXEC = "exec"  # run commands inside workloads
    NODES = "nodes"  # cordon, drain, taint, remove; adopt and delete orphans
    DATA = "data"  # images and volumes
    TOKENS = "tokens"  # who may join, with which certificate; tokens of people
    SECRETS = "secrets"  # put and delete them; they cannot be read back
    RECOVERY = "recovery"  # snapshots, which hold everything, and the ways out of recovery
    SUGGEST = "suggest"  # automation
    REPORT = "report"  # be a node: register, heartbeat, stream
    ORDER = "order"  # tell an agent what to run
    ANYONE = "anyone"  # with a valid certificate: who am I, is it well
