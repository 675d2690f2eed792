"""The AgentControl service of a scheduler, built from its parts and the interceptor chain of its RPCs.

A part is any object whose methods have the names of RPCs. Only RPCs of the METHODS table are served, each
wrapped by the chain; all others are UNIMPLEMENTED.
"""

from typing import TYPE_CHECKING

from persys.core.reconcile.situation import Policy
from persys.infra.clock import Clock
from persys.scheduler.api.chain import Chain
from persys.scheduler.api.control_stream import ControlStreamApi
from persys.scheduler.api.diagnostics import DiagnosticsApi, EventsApi, RecordsApi
from persys.scheduler.api.drift import DriftApi
from persys.scheduler.api.logs_exec import LogsExecApi
from persys.scheduler.api.nodes import NodesApi
from persys.scheduler.api.recovery import RecoveryApi
from persys.scheduler.api.secrets_tokens import IdentityApi, SecretsApi, TokensApi
from persys.scheduler.api.storage import ImagesApi, VolumesApi
from persys.scheduler.api.workloads import PlanningApi, SuggestionsApi, WorkloadsApi
from persys.scheduler.auth.audit import Audit
from persys.scheduler.drift.adoption import Adoption
from persys.scheduler.jobs.job_api import JobRequests, JobsApi
from persys.scheduler.nodepools.pool_api import NodePoolsApi
from persys.scheduler.queries.set_plan import SetPlanner
from persys.scheduler.queries.views import Queries
from persys.scheduler.reconcile.intent import IntentService
from persys.scheduler.recovery.record_repair import RecordRepair
from persys.scheduler.recovery.recovery import Recovery
from persys.scheduler.recovery.snapshots import Snapshots
from persys.scheduler.services.service_api import ServicesApi
from persys.scheduler.sets.set_api import SetRequests, SetsApi
from persys.scheduler.settings import SchedulerSettings
from persys.store.port import Store
from persys.wire.methods import METHODS

if TYPE_CHECKING:
    from persys.scheduler.app import Scheduler


class ControlApi:
    def __init__(self, *parts: object, chain: Chain) -> None:
        for name, method in METHODS.items():
            for part in parts:
                if (handler := getattr(part, name, None)) is not None:
                    setattr(self, name, chain.wrap(method, handler))


def control_api(
    app: "Scheduler", settings: SchedulerSettings, store: Store, clock: Clock, policy: Policy
) -> ControlApi:
    queries = Queries(app.cluster, clock, attempts_max=policy.retry.attempts_max)
    nodes = NodesApi(
        app.membership,
        queries,
        clock,
        heartbeat_seconds=max(1, round(settings.heartbeat_interval.total_seconds())),
        modes=app.modes,
        leader_lease=app.leader_lease,
        limited=app.limited,
        expiry=app.expiry,
    )
    intents = IntentService(
        app.reconciler, clock, lease=settings.node_lease, secrets=app.cluster.secrets
    )
    set_requests = SetRequests(lease=settings.node_lease, secrets=app.cluster.secrets)
    adoption = Adoption(
        app.cluster, app.committer, app.reconciler, app.tombstone_cleaner, app.agents, clock
    )
    return ControlApi(
        nodes,
        ControlStreamApi(nodes, app.streams, app.requests),
        WorkloadsApi(intents, queries),
        DriftApi(app.cluster, adoption),
        EventsApi(app.events),
        PlanningApi(
            app.cluster,
            clock,
            complete_situation=app.reconciler.complete_situation,
            policy=policy,
            lease=settings.node_lease,
            growth=app.pool_forecast.explain,
            explain_set=app.set_views.explain,
            set_planner=SetPlanner(app.sets, app.set_states, set_requests, clock),
        ),
        SuggestionsApi(app.suggestions, clock),
        LogsExecApi(app.cluster, app.agents),
        VolumesApi(app.cluster, app.agents),
        ImagesApi(app.cluster, app.agents),
        IdentityApi(),
        DiagnosticsApi(app.cluster, app.supervisor),
        _records_api(app, store, clock),
        SecretsApi(app.secrets, app.cluster),
        TokensApi(app.tokens),
        SetsApi(set_requests, app.sets, app.set_views),
        JobsApi(
            JobRequests(lease=settings.node_lease, secrets=app.cluster.secrets),
            app.jobs,
            app.job_views,
            clock,
        ),
        NodePoolsApi(app.node_pools, app.pool_controller, app.pool_forecast),
        ServicesApi(app.cluster, app.services, app.endpoint_table, clock, zone=app.zone),
        _recovery_api(app, settings, store, clock),
        chain=_chain(app, clock),
    )


def _records_api(app: "Scheduler", store: Store, clock: Clock) -> RecordsApi:
    return RecordsApi(
        RecordRepair(
            app.cluster,
            store,
            app.committer,
            app.agents,
            clock,
            listed=app.orphans.listed,
            mark_stale=app.store_watch.mark_stale,
        )
    )


def _recovery_api(
    app: "Scheduler", settings: SchedulerSettings, store: Store, clock: Clock
) -> RecoveryApi:
    pending_nodes = app.membership.pending_nodes
    return RecoveryApi(
        Recovery(app.cluster, app.committer, app.store_watch, app.agents, pending_nodes, clock),
        Snapshots(store, app.cluster, app.committer, clock),
        app.committer,
        app.cluster,
        pending_nodes,
        store=settings.store,
        cluster_id=settings.cluster_id,
    )


def _chain(app: "Scheduler", clock: Clock) -> Chain:
    return Chain(
        metrics=app.metrics,
        clock=clock,
        modes=app.modes,
        audit=Audit(app.committer, clock),
        owned=app.requests,
        note_contact=app.home_contacts.note,
        supervisor=app.supervisor,
    )
