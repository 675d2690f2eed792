"""Commands for access and for this machine: tokens, certificates, secrets, contexts."""

from persys.cli.framework import arguments as arg
from persys.cli.framework.tables.command import Command, Group

TOKEN = Group(
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
)

SECRET = Group(
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
)

CERTIFICATE = Group(
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
)

CONTEXT = Group(
    "context",
    "named clusters in ~/.persys/config.yaml",
    (
        Command("list", "list contexts; * marks the current one", "commands.context:list_contexts"),
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
)

AUDIT = Command(
    "audit",
    "show the audit log of a gateway: who changed what",
    "commands.audit:show",
    (arg.LIMIT,),
)

COMPLETION = Command(
    "completion",
    "print the completion script for a shell",
    "framework.completion:script",
    (arg.SHELL,),
)

HELP = Command(
    "help",
    "show the help of a command, or of a topic: connection, aliases",
    "commands.help:show",
    (arg.TOPIC,),
)

VERSION = Command("version", "print the version", "commands.version:show")
