"""Which role has which permissions, and which permission a route of persys-ca needs.

The permissions of RPCs are in `wire/methods.py`. What a caller may do to which node or workload is decided
further in: an agent speaks only for its own node.
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
    # Acts for people whose identity it passes on, and by itself only reads.
    Role.GATEWAY: frozenset({Deed.READ, Deed.ANYONE}),
    Role.AGENT: frozenset({Deed.REPORT, Deed.ANYONE}),
    # Passes on what others ask of it, and gives orders to agents.
    Role.SCHEDULER: frozenset({Deed.READ, Deed.ORDER, Deed.ANYONE}),
    # Serves, and calls nobody.
    Role.CA: frozenset(),
}

# Of persys-ca. None: no certificate is needed; whoever joins has a token, who signs by key the key.
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
