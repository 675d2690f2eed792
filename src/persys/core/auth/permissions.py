"""Which role has which permissions, and which permission a route of persys-ca needs.

The permissions of RPCs are in `wire/methods.py`. Which node or workload a caller may act on is checked by the
handlers: an agent acts only for its own node.
"""

from collections.abc import Mapping

from persys.model.identity import Caller, Permission, Role

ROLES: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.LOGS, Permission.ANYONE}),
    Role.OPERATOR: frozenset(
        {
            Permission.READ,
            Permission.LOGS,
            Permission.WORKLOADS,
            Permission.EXEC,
            Permission.NODES,
            Permission.DATA,
            Permission.SECRETS,
            Permission.SUGGEST,
            Permission.ANYONE,
        }
    ),
    Role.ADMIN: frozenset(Permission) - {Permission.REPORT},
    # Acts for users whose identity it forwards; its own permission is only to read.
    Role.GATEWAY: frozenset({Permission.READ, Permission.ANYONE}),
    Role.AGENT: frozenset({Permission.REPORT, Permission.ANYONE}),
    # Forwards the requests of others, and sends orders to agents.
    Role.SCHEDULER: frozenset({Permission.READ, Permission.ORDER, Permission.ANYONE}),
    # A server only.
    Role.CA: frozenset(),
}

# Routes of persys-ca. None: no certificate is needed; a join has a token, a CFSSL request has a key.
CA: Mapping[str, Permission | None] = {
    "GET /health": None,
    "GET /metrics": None,
    "GET /crl": None,
    "GET /crl.pem": None,
    "GET /api/v1/roots": None,
    "POST /api/v1/join": None,
    "POST /api/v1/renew": Permission.ANYONE,
    "GET /api/v1/certificates": Permission.TOKENS,
    "POST /api/v1/certificates": Permission.TOKENS,
    "POST /api/v1/revoke": Permission.ORDER,  # a scheduler revokes those of nodes that were removed
    "GET /api/v1/tokens": Permission.TOKENS,
    "POST /api/v1/tokens": Permission.ORDER,  # a scheduler creates those of machines of node pools
    "GET /api/v1/audit": Permission.TOKENS,
    "POST /api/v1/cfssl/info": None,
    "POST /api/v1/cfssl/authsign": None,
    "POST /api/v1/cfssl/sign": Permission.TOKENS,
    "POST /api/v1/cfssl/newcert": Permission.TOKENS,
    "GET /api/v1/cfssl/crl": None,
}


def has_permission(caller: Caller, permission: Permission) -> bool:
    return permission in caller.deeds


def permissions_of(role: Role) -> frozenset[Permission]:
    return ROLES[role]
