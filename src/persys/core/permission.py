"""Who may do what: tables, and the one question that is asked of them at every call.

A method that is in no table is refused; a test holds that none is missing. What a caller may
do to which node or workload is decided further in: an agent speaks only for its own node.
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

CONTROL: Mapping[str, Deed] = {
    "RegisterNode": Deed.REPORT,
    "Heartbeat": Deed.REPORT,
    "ControlStream": Deed.REPORT,
    "ApplyWorkload": Deed.WORKLOADS,
    "DeleteWorkload": Deed.WORKLOADS,
    "RetryWorkload": Deed.WORKLOADS,
    "RedeployWorkload": Deed.WORKLOADS,
    "SubmitAutomationSuggestion": Deed.SUGGEST,
    "ListNodes": Deed.READ,
    "GetNode": Deed.READ,
    "ListWorkloads": Deed.READ,
    "GetWorkload": Deed.READ,
    "GetWorkloads": Deed.READ,
    "GetClusterSummary": Deed.READ,
    "ExplainWorkload": Deed.READ,
    "PlanWorkloads": Deed.READ,
    "GetCapacity": Deed.READ,
    "ListEvents": Deed.READ,
    "WatchEvents": Deed.READ,
    "ListDrifts": Deed.READ,
    "GetMode": Deed.READ,
    "StreamLogs": Deed.LOGS,
    "Exec": Deed.EXEC,
    "CordonNode": Deed.NODES,
    "UncordonNode": Deed.NODES,
    "DrainNode": Deed.NODES,
    "ConfirmNodeDead": Deed.NODES,
    "RemoveNode": Deed.NODES,
    "TaintNode": Deed.NODES,
    "AdoptOrphan": Deed.NODES,
    "DeleteOrphan": Deed.NODES,
    "SaveSnapshot": Deed.RECOVERY,
    "RestoreSnapshot": Deed.RECOVERY,
    "RebuildFromAgents": Deed.RECOVERY,
    "AcceptEmpty": Deed.RECOVERY,
    "GetIdentity": Deed.ANYONE,
    "ListImages": Deed.READ,
    "AddImage": Deed.DATA,
    "RemoveImage": Deed.DATA,
    "ListVolumes": Deed.READ,
    "DeleteVolume": Deed.DATA,
    "CreateToken": Deed.TOKENS,
    "ListTokens": Deed.TOKENS,
    "RevokeToken": Deed.TOKENS,
    "PutSecret": Deed.SECRETS,
    "ListSecrets": Deed.READ,
    "DeleteSecret": Deed.SECRETS,
}

AGENT: Mapping[str, Deed] = {
    "ApplyWorkload": Deed.ORDER,
    "DeleteWorkload": Deed.ORDER,
    "GetWorkloadStatus": Deed.ORDER,
    "ListWorkloads": Deed.ORDER,
    "ListActions": Deed.ORDER,
    "ListIntents": Deed.ORDER,
    "GarbageCollect": Deed.ORDER,
    "StreamLogs": Deed.ORDER,
    "Exec": Deed.ORDER,
    "HealthCheck": Deed.ANYONE,
    "ListImages": Deed.ORDER,
    "AddImage": Deed.ORDER,
    "RemoveImage": Deed.ORDER,
    "ListVolumes": Deed.ORDER,
    "DeleteVolume": Deed.ORDER,
}

# Of persys-ca. None: no certificate is needed; whoever joins has a token, who signs by key the key.
CA: Mapping[str, Deed | None] = {
    "GET /health": None,
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
