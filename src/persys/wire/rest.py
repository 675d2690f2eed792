"""The HTTP form of the scheduler's contract: one table, from which the gateway serves, its clients call and
the OpenAPI document is written.

A name in braces is a field of the request. With a body, the body is the request and what the path says
stands above it; without one, the query holds the request's other fields. Two things would surprise: an answer
with success=false or accepted=false is a refusal, and so an HTTP error; and what streams has its own form.
"""

from enum import StrEnum
from typing import NamedTuple

API = "/api/v1"


class Form(StrEnum):
    """How a request and its answer travel."""

    UNARY = "unary"  # JSON and JSON
    EVENTS = "events"  # answers as server-sent events
    TEXT = "text"  # answers as the bytes that they hold, one after the other
    UPLOAD = "upload"  # the request is the bytes of a file
    SOCKET = "socket"  # both ways, over a WebSocket


class Route(NamedTuple):  # which a command line imports faster than anything else
    rpc: str
    method: str
    path: str
    body: bool = False
    form: Form = Form.UNARY


ROUTES: tuple[Route, ...] = (
    Route("ListWorkloads", "GET", "/workloads"),
    Route("GetWorkload", "GET", "/workloads/{workload_id}"),
    Route("ApplyWorkload", "PUT", "/workloads/{workload_id}", body=True),
    Route("DeleteWorkload", "DELETE", "/workloads/{workload_id}"),
    Route("RetryWorkload", "POST", "/workloads/{workload_id}/retry"),
    Route("RedeployWorkload", "POST", "/workloads/{workload_id}/redeploy"),
    Route("ExplainWorkload", "GET", "/workloads/{workload_id}/explain"),
    Route("StreamLogs", "GET", "/workloads/{workload_id}/logs", form=Form.TEXT),
    Route("Exec", "GET", "/workloads/{workload_id}/exec", form=Form.SOCKET),
    Route("PlanWorkloads", "POST", "/plan", body=True),
    Route("GetCapacity", "POST", "/capacity", body=True),
    Route("SubmitAutomationSuggestion", "POST", "/suggestions", body=True),
    Route("ListNodes", "GET", "/nodes"),
    Route("GetNode", "GET", "/nodes/{node_id}"),
    Route("RemoveNode", "DELETE", "/nodes/{node_id}"),
    Route("CordonNode", "POST", "/nodes/{node_id}/cordon"),
    Route("UncordonNode", "POST", "/nodes/{node_id}/uncordon"),
    Route("DrainNode", "POST", "/nodes/{node_id}/drain", body=True),
    Route("ConfirmNodeDead", "POST", "/nodes/{node_id}/confirm-dead"),
    Route("TaintNode", "PUT", "/nodes/{node_id}/taints", body=True),
    Route("GetClusterSummary", "GET", "/summary"),
    Route("ListEvents", "GET", "/events"),
    Route("WatchEvents", "GET", "/events/watch", form=Form.EVENTS),
    Route("ListDrifts", "GET", "/drifts"),
    Route("AdoptOrphan", "POST", "/orphans/{node_id}/{workload_id}/adopt"),
    Route("DeleteOrphan", "DELETE", "/orphans/{node_id}/{workload_id}"),
    Route("GetMode", "GET", "/mode"),
    Route("SaveSnapshot", "GET", "/snapshot", form=Form.TEXT),
    Route("RestoreSnapshot", "PUT", "/snapshot", form=Form.UPLOAD),
    Route("RebuildFromAgents", "POST", "/recovery/rebuild"),
    Route("AcceptEmpty", "POST", "/recovery/accept-empty"),
    Route("ListImages", "GET", "/images"),
    Route("AddImage", "PUT", "/images/{name}", form=Form.UPLOAD),
    Route("RemoveImage", "DELETE", "/images/{name}"),
    Route("ListVolumes", "GET", "/volumes"),
    Route("DeleteVolume", "DELETE", "/volumes/{node_id}/{workload_id}/{name}"),
    Route("GetIdentity", "GET", "/identity"),
    Route("CreateToken", "POST", "/tokens", body=True),
    Route("ListTokens", "GET", "/tokens"),
    Route("RevokeToken", "DELETE", "/tokens/{token_id}"),
    Route("PutSecret", "PUT", "/secrets/{name}", body=True),
    Route("ListSecrets", "GET", "/secrets"),
    Route("DeleteSecret", "DELETE", "/secrets/{name}"),
)

# Older clients call these, beside /health and /clusters; each also under /clusters/{cluster}. Here answers
# are the contract's own messages, refusals included.
CONTRACT_ROUTES: tuple[Route, ...] = (
    Route("ApplyWorkload", "POST", "/workloads/schedule", body=True),
    Route("ListWorkloads", "GET", "/workloads"),
    Route("ListWorkloads", "GET", "/list"),
    Route("GetWorkload", "GET", "/workloads/{workload_id}"),
    Route("DeleteWorkload", "DELETE", "/workloads/{workload_id}"),
    Route("RetryWorkload", "POST", "/workloads/{workload_id}/retry"),
    Route("ListNodes", "GET", "/nodes"),
    Route("GetNode", "GET", "/nodes/{node_id}"),
    Route("GetClusterSummary", "GET", "/cluster/metrics"),
)

# Agents call these at the scheduler itself, and nobody else does; the last is for gateways.
NOT_SERVED = frozenset({"RegisterNode", "Heartbeat", "ControlStream", "GetWorkloads"})
