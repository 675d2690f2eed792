"""Which role has which permissions, and which permission a route of persys-ca needs.

The permissions of RPCs are in `wire/methods.py`. Which node or workload a caller may act on is checked by the
handlers: an agent acts only for its own node.
"""

from collections.abc import Mapping

from persys.model.identity import Caller, Deed, Role

ROLES: Mapping[Role, frozenset[Deed]] = {
    Role.VIEWER: frozenset({Deed.READ, Deed.LOGS, Deed.ANYONE}),
    Role.OPERATOR: frozenset(
        {
            Deed.READ,
            Deed.LOGS,
            Deed.WORKLOADS,
            Deed.EXEC,
            Deed.NODES,
            Deed.DATA,
            Deed.SECRETS,
            Deed.SUGGEST,
            Deed.ANYONE,
        }
    ),
    Role.ADMIN: frozenset(Deed) - {Deed.REPORT},
    # Acts for users whose identity it forwards; its own permission is only to read.
    Role.GATEWAY: frozenset({Deed.READ, Deed.ANYONE}),
    Role.AGENT: frozenset({Deed.REPORT, Deed.ANYONE}),
    # Forwards the requests of others, and sends orders to agents.
    Role.SCHEDULER: frozenset({Deed.READ, Deed.ORDER, Deed.ANYONE}),
    # A server only.
    Role.CA: frozenset(),
}

# Routes of persys-ca. None: no certificate is needed; a join has a token, a CFSSL request has a key.
CA: Mapping[str, Deed | None] = {
    "GET /health": None,
    "GET /metrics": None,
    "GET /crl": None,
    "GET /crl.pem": None,
    "GET /api/v1/roots": None,
    "POST /api/v1/join": None,
    "POST /api/v1/renew": Deed.ANYONE,
    "GET /api/v1/certificates": Deed.TOKENS,
    "POST /api/v1/certificates": Deed.TOKENS,
    "POST /api/v1/revoke": Deed.ORDER,  # a scheduler revokes those of nodes that were removed
    "GET /api/v1/tokens": Deed.TOKENS,
    "POST /api/v1/tokens": Deed.TOKENS,
    "GET /api/v1/audit": Deed.TOKENS,
    "POST /api/v1/cfssl/info": None,
    "POST /api/v1/cfssl/authsign": None,
    "POST /api/v1/cfssl/sign": Deed.TOKENS,
    "POST /api/v1/cfssl/newcert": Deed.TOKENS,
    "GET /api/v1/cfssl/crl": None,
}


def may(caller: Caller, deed: Deed) -> bool:
    return deed in caller.deeds


def deeds_of(role: Role) -> frozenset[Deed]:
    return ROLES[role]
