"""The table of all RPCs of both services.

Authorization, forwarding by a standby, read-only mode, audit, time limits, the REST routes with their OpenAPI
document, the REST client and the permission tables in docs/reference/permissions.md are derived from it. An
RPC without a row is not served; a test compares the table with the service descriptors.

Plain data without protobuf or msgspec: persysctl imports it at start-up.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from persys.model.role import Permission

MIB = 1024 * 1024
REQUEST_BYTES_MAX = 4 * MIB
DEADLINE_SECONDS = 30.0
LONG_SECONDS = 600.0
SNAPSHOT_BYTES_MAX = 1024 * MIB


class Stream(StrEnum):
    """Which side sends more than one message."""

    NONE = "none"
    REQUESTS = "requests"
    ANSWERS = "answers"
    BOTH = "both"

    @property
    def of_requests(self) -> bool:
        return self in (Stream.REQUESTS, Stream.BOTH)

    @property
    def of_answers(self) -> bool:
        return self in (Stream.ANSWERS, Stream.BOTH)


class ReadOnly(StrEnum):
    """The handling of a call while the scheduler is in degraded or recovery mode."""

    SERVE = "serve"  # reads, and calls that do not change the cluster's records
    REFUSE = "refuse"
    OWN = "own"  # the handler decides: reports of nodes, and recovery itself


class Audit(StrEnum):
    """The event that records the caller."""

    NONE = "none"
    COMMIT = "commit"  # the event that is committed with the change
    START = "start"  # a separate event before the first response
    END = "end"  # a separate event after the call succeeded


class Form(StrEnum):
    """The HTTP form of a request and its response."""

    UNARY = "unary"  # JSON request and JSON response
    EVENTS = "events"  # server-sent events
    TEXT = "text"  # the concatenated bytes of the responses
    UPLOAD = "upload"  # the request body is the content of a file
    SOCKET = "socket"  # a WebSocket


class Scope(NamedTuple):
    """What a token with a prefix may do with an RPC.

    A path names a field, through nested messages and lists: `nodes.drain.blocked.workload_id`.
    """

    allowed: bool = True
    ids: tuple[str, ...] = ()  # of the request: each value must begin with the prefix
    filters: tuple[str, ...] = ()  # of responses: list items without the prefix are removed
    hides: tuple[str, ...] = ()  # of responses: cleared, because they may contain names of others


REFUSED = Scope(allowed=False)
UNLIMITED = Scope()
BY_WORKLOAD = Scope(ids=("workload_id",))
BY_NAME = Scope(ids=("name",))


class Http(NamedTuple):
    """One HTTP route of an RPC. A path parameter in braces is a field of the request."""

    method: str
    path: str
    body: bool = False
    form: Form = Form.UNARY


class Method(NamedTuple):
    """One RPC. The defaults are for an RPC that changes nothing."""

    name: str
    permission: Permission
    mutating: bool = False
    standby: bool = False  # a standby serves it from its own memory
    stream: Stream = Stream.NONE
    read_only: ReadOnly = ReadOnly.SERVE
    audit: Audit = Audit.NONE
    event: str = ""  # the EventKind of the separate audit event
    idempotent: bool = True  # may be retried when the connection breaks
    conditional: bool = False  # over HTTP: accepts If-Match and If-None-Match
    routes: tuple[Http, ...] = ()  # under /api/v1; empty: not served by a gateway
    older_routes: tuple[Http, ...] = ()  # without a prefix, for existing clients
    request_bytes_max: int = REQUEST_BYTES_MAX  # of one message
    upload_bytes_max: int = 0  # of all messages of a stream that is buffered before the change
    deadline_seconds: float = DEADLINE_SECONDS  # 0: no limit
    scope: Scope | None = None  # of tokens with a prefix; None: refused, but each row has one
    items: str = ""  # the only field of a request whose entries the handler checks: one fails alone


def _read(name: str, *routes: Http, **others: Any) -> Method:
    return Method(name, Permission.READ, standby=True, routes=routes)._replace(**others)


def _change(name: str, permission: Permission, *routes: Http, **others: Any) -> Method:
    """An RPC that changes the cluster's records: refused in read-only mode, committed with its event."""
    return Method(
        name,
        permission,
        mutating=True,
        read_only=ReadOnly.REFUSE,
        audit=Audit.COMMIT,
        idempotent=False,
        routes=routes,
    )._replace(**others)


_WORKLOAD = "/workloads/{workload_id}"
_NODE = "/nodes/{node_id}"
_ORPHAN = "/orphans/{node_id}/{workload_id}"
_POOL = "/nodepools/{pool_id}"
_SET = "/sets/{set_id}"
_JOB = "/jobs/{job_id}"
_SERVICE = "/services/{service_id}"
_BY_SET = Scope(ids=("set_id",))
_BY_JOB = Scope(ids=("job_id",))
# Nodes are readable, because the holder of a token needs to know the free capacity.
_NODES = Scope(
    filters=("nodes.drain.blocked.workload_id",),
    hides=("nodes.grpc_endpoint", "nodes.status_updated_by"),
)
_NODE_VIEW = Scope(
    filters=("node.drain.blocked.workload_id",),
    hides=("node.grpc_endpoint", "node.status_updated_by"),
)

_ROWS: tuple[Method, ...] = (
    # Reports of nodes.
    _change(
        "RegisterNode",
        Permission.REPORT,
        read_only=ReadOnly.OWN,
        idempotent=True,
        audit=Audit.NONE,
        scope=REFUSED,
    ),
    _change(
        "Heartbeat",
        Permission.REPORT,
        read_only=ReadOnly.OWN,
        idempotent=True,
        audit=Audit.NONE,
        scope=REFUSED,
    ),
    Method(
        "ControlStream",
        Permission.REPORT,
        stream=Stream.BOTH,
        read_only=ReadOnly.OWN,
        idempotent=False,
        deadline_seconds=0,
        scope=REFUSED,
    ),
    # Workloads.
    _change(
        "ApplyWorkload",
        Permission.WORKLOADS,
        Http("PUT", _WORKLOAD, body=True),
        conditional=True,
        older_routes=(Http("POST", "/workloads/schedule", body=True),),
        scope=BY_WORKLOAD,
    ),
    _change(
        "ApplyWorkloads",
        Permission.WORKLOADS,
        Http("POST", "/workloads", body=True),
        scope=Scope(ids=("workloads.workload_id",)),
        items="workloads",
    ),
    _change(
        "DeleteWorkload",
        Permission.WORKLOADS,
        Http("DELETE", _WORKLOAD),
        conditional=True,
        older_routes=(Http("DELETE", _WORKLOAD),),
        scope=BY_WORKLOAD,
    ),
    _change(
        "RetryWorkload",
        Permission.WORKLOADS,
        Http("POST", f"{_WORKLOAD}/retry"),
        older_routes=(Http("POST", f"{_WORKLOAD}/retry"),),
        scope=BY_WORKLOAD,
    ),
    _change(
        "RedeployWorkload",
        Permission.WORKLOADS,
        Http("POST", f"{_WORKLOAD}/redeploy"),
        scope=BY_WORKLOAD,
    ),
    _change(
        "SubmitAutomationSuggestion",
        Permission.SUGGEST,
        Http("POST", "/suggestions", body=True),
        scope=REFUSED,
    ),
    _read("ListSuggestions", Http("GET", "/suggestions"), scope=REFUSED),
    # Approving needs the permission of the suggested action, which the handler checks.
    _change(
        "ApproveSuggestion",
        Permission.ANYONE,
        Http("POST", "/suggestions/{suggestion_id}/approve"),
        scope=REFUSED,
    ),
    _change(
        "RejectSuggestion",
        Permission.ANYONE,
        Http("POST", "/suggestions/{suggestion_id}/reject"),
        scope=REFUSED,
    ),
    _read(
        "ListWorkloads",
        Http("GET", "/workloads"),
        older_routes=(Http("GET", "/workloads"), Http("GET", "/list")),
        scope=Scope(filters=("workloads.workload_id",)),
    ),
    _read(
        "GetWorkload",
        Http("GET", _WORKLOAD),
        older_routes=(Http("GET", _WORKLOAD),),
        scope=BY_WORKLOAD,
    ),
    _read("GetWorkloads", scope=Scope(filters=("found.workload.workload_id",))),  # for gateways
    _read(
        "ExplainWorkload",
        Http("GET", f"{_WORKLOAD}/explain"),
        scope=Scope(ids=("workload_id",), hides=("nodes.change", "changes")),
    ),
    _read(
        "PlanWorkloads",
        Http("POST", "/plan", body=True),
        scope=Scope(ids=("workloads.workload_id", "sets.set_id")),
    ),
    _read(
        "GetCapacity",
        Http("POST", "/capacity", body=True),
        scope=Scope(filters=("losses.stranded", "losses.bound")),
    ),
    Method(
        "StreamLogs",
        Permission.LOGS,
        stream=Stream.ANSWERS,
        routes=(Http("GET", f"{_WORKLOAD}/logs", form=Form.TEXT),),
        deadline_seconds=0,
        scope=BY_WORKLOAD,
    ),
    Method(
        "Exec",
        Permission.EXEC,
        stream=Stream.BOTH,
        idempotent=False,
        audit=Audit.START,
        event="ExecStarted",
        routes=(Http("GET", f"{_WORKLOAD}/exec", form=Form.SOCKET),),
        deadline_seconds=0,
        scope=Scope(ids=("start.workload_id",)),
    ),
    # Nodes.
    _read("ListNodes", Http("GET", "/nodes"), older_routes=(Http("GET", "/nodes"),), scope=_NODES),
    _read("GetNode", Http("GET", _NODE), older_routes=(Http("GET", _NODE),), scope=_NODE_VIEW),
    _change("CordonNode", Permission.NODES, Http("POST", f"{_NODE}/cordon"), scope=REFUSED),
    _change("UncordonNode", Permission.NODES, Http("POST", f"{_NODE}/uncordon"), scope=REFUSED),
    _change(
        "DrainNode", Permission.NODES, Http("POST", f"{_NODE}/drain", body=True), scope=REFUSED
    ),
    _change(
        "ConfirmNodeDead", Permission.NODES, Http("POST", f"{_NODE}/confirm-dead"), scope=REFUSED
    ),
    _change("RemoveNode", Permission.NODES, Http("DELETE", _NODE), scope=REFUSED),
    _change(
        "TaintNode", Permission.NODES, Http("PUT", f"{_NODE}/taints", body=True), scope=REFUSED
    ),
    # The cluster.
    _read(
        "GetClusterSummary",
        Http("GET", "/summary"),
        older_routes=(Http("GET", "/cluster/metrics"),),
        scope=UNLIMITED,
    ),
    _read("ListEvents", Http("GET", "/events"), scope=Scope(filters=("events.workload_id",))),
    _read(
        "WatchEvents",
        Http("GET", "/events/watch", form=Form.EVENTS),
        standby=False,
        stream=Stream.ANSWERS,
        deadline_seconds=0,
        scope=Scope(filters=("workload_id",)),
    ),
    _read(
        "ListDrifts",
        Http("GET", "/drifts"),
        scope=Scope(filters=("drifts.workload_id",), hides=("orphans_unrecorded",)),
    ),
    _read("GetOrphan", Http("GET", _ORPHAN), standby=False, scope=REFUSED),
    _change("AdoptOrphan", Permission.NODES, Http("POST", f"{_ORPHAN}/adopt"), scope=REFUSED),
    _change("DeleteOrphan", Permission.NODES, Http("DELETE", _ORPHAN), scope=REFUSED),
    _read("GetMode", Http("GET", "/mode"), scope=UNLIMITED),
    _read("GetDiagnostics", Http("GET", "/diagnostics"), standby=False, scope=REFUSED),
    # Unreadable stored records. Their bytes are as sensitive as a snapshot.
    _read(
        "ListRecords",
        Http("GET", "/records"),
        permission=Permission.RECOVERY,
        standby=False,
        scope=REFUSED,
    ),
    _read(
        "GetRecord",
        Http("GET", "/record"),
        permission=Permission.RECOVERY,
        standby=False,
        audit=Audit.END,
        event="RecordRead",
        scope=REFUSED,
    ),
    _change(
        "DeleteRecord",
        Permission.RECOVERY,
        Http("DELETE", "/record"),
        deadline_seconds=LONG_SECONDS,
        scope=REFUSED,
    ),
    # Recovery.
    Method(
        "SaveSnapshot",
        Permission.RECOVERY,
        stream=Stream.ANSWERS,
        audit=Audit.START,
        event="SnapshotSaved",
        routes=(Http("GET", "/snapshot", form=Form.TEXT),),
        deadline_seconds=0,
        scope=REFUSED,
    ),
    _change(
        "RestoreSnapshot",
        Permission.RECOVERY,
        Http("PUT", "/snapshot", form=Form.UPLOAD),
        stream=Stream.REQUESTS,
        read_only=ReadOnly.OWN,
        audit=Audit.END,
        event="SnapshotRestored",
        upload_bytes_max=SNAPSHOT_BYTES_MAX,
        deadline_seconds=0,
        scope=REFUSED,
    ),
    _change(
        "RebuildFromAgents",
        Permission.RECOVERY,
        Http("POST", "/recovery/rebuild"),
        read_only=ReadOnly.OWN,
        audit=Audit.END,
        event="ClusterRebuilt",
        deadline_seconds=LONG_SECONDS,
        scope=REFUSED,
    ),
    _change(
        "AcceptEmpty",
        Permission.RECOVERY,
        Http("POST", "/recovery/accept-empty"),
        read_only=ReadOnly.OWN,
        audit=Audit.END,
        event="StoreAccepted",
        deadline_seconds=LONG_SECONDS,
        scope=REFUSED,
    ),
    # Images and volumes are on the nodes, not in the store.
    _read(
        "ListImages",
        Http("GET", "/images"),
        standby=False,
        scope=Scope(filters=("images.used_by",)),
    ),
    Method(
        "AddImage",
        Permission.DATA,
        stream=Stream.BOTH,
        idempotent=False,
        audit=Audit.START,
        event="ImageAdded",
        routes=(Http("PUT", "/images/{name}", form=Form.UPLOAD),),
        deadline_seconds=0,
        scope=REFUSED,
    ),
    _change(
        "RemoveImage",
        Permission.DATA,
        Http("DELETE", "/images/{name}"),
        read_only=ReadOnly.SERVE,
        audit=Audit.END,
        event="ImageRemoved",
        deadline_seconds=LONG_SECONDS,
        scope=REFUSED,
    ),
    _read(
        "ListVolumes",
        Http("GET", "/volumes"),
        standby=False,
        scope=Scope(filters=("volumes.workload_id",)),
    ),
    _change(
        "DeleteVolume",
        Permission.DATA,
        Http("DELETE", "/volumes/{node_id}/{workload_id}/{name}"),
        audit=Audit.END,
        event="VolumeDeleted",
        deadline_seconds=LONG_SECONDS,
        scope=BY_WORKLOAD,
    ),
    # Access.
    _read("GetIdentity", Http("GET", "/identity"), permission=Permission.ANYONE, scope=UNLIMITED),
    _change("CreateToken", Permission.TOKENS, Http("POST", "/tokens", body=True), scope=REFUSED),
    _read(
        "ListTokens",
        Http("GET", "/tokens"),
        permission=Permission.TOKENS,
        standby=False,
        scope=REFUSED,
    ),
    _change("RevokeToken", Permission.TOKENS, Http("DELETE", "/tokens/{token_id}"), scope=REFUSED),
    _change(
        "PutSecret",
        Permission.SECRETS,
        Http("PUT", "/secrets/{name}", body=True),
        scope=Scope(ids=("name",), filters=("secret.used_by",)),
    ),
    _read(
        "ListSecrets",
        Http("GET", "/secrets"),
        standby=False,
        scope=Scope(filters=("secrets.name", "secrets.used_by")),
    ),
    _change("DeleteSecret", Permission.SECRETS, Http("DELETE", "/secrets/{name}"), scope=BY_NAME),
    # Node pools.
    _change(
        "CreateNodePool", Permission.NODES, Http("POST", "/nodepools", body=True), scope=REFUSED
    ),
    _read("ListNodePools", Http("GET", "/nodepools"), standby=False, scope=REFUSED),
    _read("GetNodePool", Http("GET", _POOL), standby=False, scope=REFUSED),
    _read(
        "PlanNodePool",
        Http("GET", f"{_POOL}/plan"),
        standby=False,
        deadline_seconds=180.0,
        scope=REFUSED,
    ),
    _change(
        "PauseNodePool",
        Permission.NODES,
        Http("POST", f"{_POOL}/pause", body=True),
        scope=REFUSED,
    ),
    _change("DeleteNodePool", Permission.NODES, Http("DELETE", _POOL), scope=REFUSED),
    # Sets and their rollouts.
    _change(
        "ApplySet",
        Permission.WORKLOADS,
        Http("POST", "/sets", body=True),
        scope=Scope(ids=("set.set_id",)),
    ),
    _read("ListSets", Http("GET", "/sets"), scope=Scope(filters=("sets.spec.set_id",))),
    _read("GetSet", Http("GET", _SET), scope=_BY_SET),
    _change("DeleteSet", Permission.WORKLOADS, Http("DELETE", _SET), scope=_BY_SET),
    _change(
        "ScaleSet", Permission.WORKLOADS, Http("POST", f"{_SET}/scale", body=True), scope=_BY_SET
    ),
    _change("PauseRollout", Permission.WORKLOADS, Http("POST", f"{_SET}/pause"), scope=_BY_SET),
    _change("ResumeRollout", Permission.WORKLOADS, Http("POST", f"{_SET}/resume"), scope=_BY_SET),
    _change("PromoteRollout", Permission.WORKLOADS, Http("POST", f"{_SET}/promote"), scope=_BY_SET),
    _change(
        "UndoRollout", Permission.WORKLOADS, Http("POST", f"{_SET}/undo", body=True), scope=_BY_SET
    ),
    # Services. A selector by label can name workloads of others, so tokens with a prefix may use none.
    _change(
        "ApplyService", Permission.WORKLOADS, Http("POST", "/services", body=True), scope=REFUSED
    ),
    _read("ListServices", Http("GET", "/services"), scope=REFUSED),
    _read("GetService", Http("GET", _SERVICE), scope=REFUSED),
    _change("DeleteService", Permission.WORKLOADS, Http("DELETE", _SERVICE), scope=REFUSED),
    # Jobs and their runs.
    _change(
        "ApplyJob",
        Permission.WORKLOADS,
        Http("POST", "/jobs", body=True),
        scope=Scope(ids=("job.job_id",)),
    ),
    _read("ListJobs", Http("GET", "/jobs"), scope=Scope(filters=("jobs.spec.job_id",))),
    _read("GetJob", Http("GET", _JOB), scope=_BY_JOB),
    _change("DeleteJob", Permission.WORKLOADS, Http("DELETE", _JOB), scope=_BY_JOB),
    _change("RunJob", Permission.WORKLOADS, Http("POST", f"{_JOB}/run"), scope=_BY_JOB),
    _change(
        "SuspendJob",
        Permission.WORKLOADS,
        Http("POST", f"{_JOB}/suspend", body=True),
        scope=_BY_JOB,
    ),
    _change(
        "CancelRun",
        Permission.WORKLOADS,
        Http("POST", f"{_JOB}/runs/{{run_id}}/cancel"),
        scope=Scope(ids=("job_id", "run_id")),
    ),
)

_AGENT_ROWS: tuple[Method, ...] = (
    Method("ApplyWorkload", Permission.ORDER, mutating=True),
    Method("DeleteWorkload", Permission.ORDER, mutating=True),
    Method("GetWorkloadStatus", Permission.ORDER),
    Method("ListWorkloads", Permission.ORDER),
    Method("ListActions", Permission.ORDER),
    Method("ListIntents", Permission.ORDER, stream=Stream.ANSWERS, deadline_seconds=0),
    Method("GarbageCollect", Permission.ORDER, mutating=True, deadline_seconds=LONG_SECONDS),
    Method("StreamLogs", Permission.ORDER, stream=Stream.ANSWERS, deadline_seconds=0),
    Method("Exec", Permission.ORDER, stream=Stream.BOTH, idempotent=False, deadline_seconds=0),
    Method("HealthCheck", Permission.ANYONE),
    Method("ListImages", Permission.ORDER),
    Method("AddImage", Permission.ORDER, stream=Stream.BOTH, idempotent=False, deadline_seconds=0),
    Method("RemoveImage", Permission.ORDER, mutating=True, deadline_seconds=LONG_SECONDS),
    Method("ListVolumes", Permission.ORDER),
    Method("DeleteVolume", Permission.ORDER, mutating=True, deadline_seconds=LONG_SECONDS),
    Method("ApplyWorkloads", Permission.ORDER, mutating=True),
    Method("ConfigureNetworks", Permission.ORDER, mutating=True),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
AGENT_METHODS: dict[str, Method] = {row.name: row for row in _AGENT_ROWS}

CONTROL_PERMISSIONS: dict[str, Permission] = {row.name: row.permission for row in _ROWS}
AGENT_PERMISSIONS: dict[str, Permission] = {row.name: row.permission for row in _AGENT_ROWS}
