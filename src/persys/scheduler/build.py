"""Builds the parts of a scheduler, each group from those before it. Nothing is set after construction.

A part gets what is below it as constructor arguments. What it reports upwards is a signal, which `connect`
links to the parts that react. Read the functions in their order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from persys.core.event_retention import EventLimits
from persys.errors import PersysError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import Clock
from persys.infra.encryption import KeyFile
from persys.model.event import NumberedEvent
from persys.model.ids import NodeId
from persys.model.nodepool import NodePool
from persys.providers.port import Provider, WorkloadApi
from persys.scheduler.commit.committer import Committer, new_commit_queue
from persys.scheduler.commit.store_watch import StoreWatch
from persys.scheduler.commit.versions import RecordVersions
from persys.scheduler.discovery import endpoints
from persys.scheduler.discovery.dns_records import Discovery
from persys.scheduler.dispatch.agent_client import AgentClient, Connect
from persys.scheduler.dispatch.dispatcher import Dispatcher
from persys.scheduler.dispatch.observations import Observations, TaskHistory
from persys.scheduler.dispatch.tunnel import Tunnels
from persys.scheduler.drift.orphans import Orphans
from persys.scheduler.drift.tombstones import TombstoneCleaner
from persys.scheduler.ha.leader_key import LeaderKey
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.scheduler.jobs.attempt_states import AttemptStates
from persys.scheduler.jobs.controller import JobController
from persys.scheduler.jobs.job_api import JobViews
from persys.scheduler.jobs.jobs import Jobs
from persys.scheduler.membership.heartbeat import ReportLimits
from persys.scheduler.membership.leases import NodeLeases
from persys.scheduler.membership.node_records import NodeRecords
from persys.scheduler.membership.node_removal import NodeRemoval
from persys.scheduler.membership.nodes import Membership
from persys.scheduler.membership.reachability import Reachability
from persys.scheduler.membership.removed_nodes import RemovedNodes, Revoke
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.nodepools.controller import PoolController
from persys.scheduler.nodepools.observed import Observed
from persys.scheduler.nodepools.pool_api import PoolForecast
from persys.scheduler.nodepools.pools import NodePools
from persys.scheduler.nodepools.provision import (
    ClusterAddress,
    IssueToken,
    MachineVms,
    Provisioner,
    volume_counter,
)
from persys.scheduler.reconcile.reconciler import Reconciler, policy_of
from persys.scheduler.reconcile.resync import Resync
from persys.scheduler.reconcile.situation_builder import SituationBuilder
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.secrets.references import Resolver, SecretSource
from persys.scheduler.secrets.store import SecretStore
from persys.scheduler.services.endpoint_table import EndpointTable
from persys.scheduler.sets.autoscaler import Autoscaler, query_value
from persys.scheduler.sets.controller import SetController
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.sets.set_views import SetViews
from persys.scheduler.sets.sets import Sets
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.signals import NodeCall, Signals
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import StateLoader
from persys.store.open import secrets_key_path
from persys.store.port import Store


@dataclass(frozen=True, slots=True)
class Base:
    """What every group of parts needs."""

    settings: SchedulerSettings
    store: Store
    clock: Clock
    random: Random
    metrics: Metrics
    supervisor: Supervisor
    signals: Signals
    cluster: ClusterState
    # Serialize the changes of a node record.
    node_locks: KeyedLock[NodeId] = field(default_factory=KeyedLock)

    def new_uid(self) -> str:
        return f"{self.random.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True)
class CommitParts:
    modes: ModeTracker
    leader_key: LeaderKey
    loader: StateLoader
    store_watch: StoreWatch
    committer: Committer
    leader_lease: LeaderLease


@dataclass(frozen=True, slots=True)
class ReconcileParts:
    reconciler: Reconciler
    task_history: TaskHistory


@dataclass(frozen=True, slots=True)
class AgentParts:
    limited: ReportLimits
    streams: Tunnels
    secrets: SecretStore
    agents: AgentClient


@dataclass(frozen=True, slots=True)
class DispatchParts:
    reachability: Reachability
    tombstone_cleaner: TombstoneCleaner
    orphans: Orphans
    observations: Observations
    dispatcher: Dispatcher
    resync: Resync


@dataclass(frozen=True, slots=True)
class MembershipParts:
    removed: RemovedNodes
    removal: NodeRemoval
    leases: NodeLeases
    membership: Membership


@dataclass(frozen=True, slots=True)
class MachineSources:
    """Where the machines of node pools come from. `issue_token` None: machines join without TLS."""

    open_provider: Callable[[NodePool, Mapping[str, str], WorkloadApi | None], Provider]
    issue_token: IssueToken | None = None


@dataclass(frozen=True, slots=True)
class NodePoolParts:
    pools: NodePools
    controller: PoolController
    forecast: PoolForecast


@dataclass(frozen=True, slots=True)
class SetParts:
    states: MemberStates
    controller: SetController
    sets: Sets
    views: SetViews
    autoscaler: Autoscaler


@dataclass(frozen=True, slots=True)
class JobParts:
    controller: JobController
    jobs: Jobs
    views: JobViews


def build_commit(
    base: Base, *, name: str, shared: bool, new_leader_lease: type[LeaderLease]
) -> CommitParts:
    """The mode, the leader key, the committer and what keeps memory equal to the store."""
    settings, clock, cluster, store = base.settings, base.clock, base.cluster, base.store
    modes = ModeTracker(clock, on_normal=lambda: base.signals.mode_normal.emit(None))
    leader_key = LeaderKey(
        store,
        clock,
        name=name,
        endpoint=endpoints.endpoint_of(settings),
        new_uid=base.new_uid,
        lease_seconds=round(settings.leader_lease.total_seconds()) if shared else 0,
    )
    loader = StateLoader(
        cluster,
        clock,
        base.supervisor,
        lease=settings.node_lease,
        loaded=base.signals.records_loaded.emit,
    )

    def on_events(events: list[NumberedEvent], trimmed: list[int]) -> None:
        base.metrics.events_written(events)
        cluster.events.take(events, trimmed)

    versions = RecordVersions(EventLimits(settings.events_max, settings.events_max_age))
    queue = new_commit_queue()
    watch = StoreWatch(
        store,
        versions=versions,
        leader_key=leader_key,
        modes=modes,
        has_records=lambda: bool(cluster.workloads or cluster.nodes),
        wake=queue.wake,
        on_reload=loader.load,
        on_events=on_events,
    )
    committer = Committer(
        store,
        clock,
        queue=queue,
        watch=watch,
        versions=versions,
        leader_key=leader_key,
        modes=modes,
        quarantine=cluster.quarantine,
        metrics=base.metrics,
        on_events=on_events,
    )
    base.signals.leader_confirmed.connect(lambda _: modes.confirm())
    lease = new_leader_lease(
        leader_key,
        clock,
        mark_stale=watch.mark_stale,
        confirm=lambda: base.signals.leader_confirmed.emit(None),
    )
    return CommitParts(modes, leader_key, loader, watch, committer, lease)


def build_reconcile(base: Base, commit: CommitParts) -> ReconcileParts:
    """Decisions about workloads."""
    settings = base.settings
    reconciler = Reconciler(
        base.cluster,
        commit.committer,
        base.clock,
        policy=policy_of(settings),
        situations=SituationBuilder(
            base.cluster,
            base.clock,
            node_lease=settings.node_lease,
            node_grace=settings.node_unavailable_grace.total_seconds(),
            offload_after=settings.offload_after,
        ),
        random=base.random,
        metrics=base.metrics,
        supervisor=base.supervisor,
        submit_effect=base.signals.effect_decided.emit,
        request_removal=base.signals.copy_left.emit,
        check_leader=commit.leader_lease.check,
    )
    history = TaskHistory(base.cluster, commit.committer, reconciler, base.clock)
    return ReconcileParts(reconciler, history)


def build_agents(
    base: Base,
    commit: CommitParts,
    *,
    connect: Connect,
    connect_by_host: Connect,
    vault: SecretSource | None,
    secrets_key: KeyFile | None,
) -> AgentParts:
    """Calls to agents, and the secrets that orders need."""
    settings, clock, cluster = base.settings, base.clock, base.cluster
    node_called = base.signals.node_called
    limited, streams = ReportLimits(base.metrics), Tunnels()
    key_path = secrets_key_path(settings.store, settings.secrets_key_file)
    secrets = SecretStore(cluster, commit.committer, clock, secrets_key or KeyFile(key_path))
    agents = AgentClient(
        clock,
        streams,
        base.metrics,
        deadline=settings.agent_rpc_timeout,
        supervisor=base.supervisor,
        limited=limited,
        reached=lambda node_id, problem: node_called.emit(NodeCall(node_id, problem)),
        prove=cluster.prove,
        connect=connect,
        connect_by_host=connect_by_host,
        is_known_by_host=cluster.is_known_by_host,
        resolve=Resolver(secrets.open, vault).resolve,
    )
    return AgentParts(limited, streams, secrets, agents)


def build_dispatch(
    base: Base, commit: CommitParts, reconcile: ReconcileParts, agents: AgentClient
) -> DispatchParts:
    """Sends orders to agents, and processes their replies and reports."""
    reachability = Reachability(
        base.cluster,
        agents,
        capacity_freed=reconcile.reconciler.capacity_freed,
        replies_again=base.signals.node_replies.emit,
    )
    cleaner = _build_tombstone_cleaner(base, commit, reconcile.reconciler)
    orphans = Orphans(
        base.cluster,
        commit.committer,
        agents,
        base.clock,
        supervisor=base.supervisor,
        grace=base.settings.missing_grace_period,
        wake=reconcile.reconciler.wake,
        locks=base.node_locks,
    )
    observations = Observations(
        base.cluster,
        wake=reconcile.reconciler.wake,
        removed=cleaner.removed,
        replaced=cleaner.replaced,
        listed=orphans.listed,
        ignored=base.metrics.report_ignored,
        changed=base.signals.state_changed.emit,
    )
    dispatcher = Dispatcher(
        base.cluster,
        agents,
        observations,
        base.clock,
        supervisor=base.supervisor,
        wake=reconcile.reconciler.wake,
        replied=reconcile.reconciler.replied,
        may_order=lambda: not commit.modes.is_frozen and commit.leader_lease.is_confirmed,
        acknowledged=cleaner.acknowledged,
        inquired=reconcile.task_history.note,
        keep_actions=reconcile.task_history.keep,
    )
    resync = Resync(
        base.cluster,
        agents,
        observations,
        base.clock,
        supervisor=base.supervisor,
        wake=reconcile.reconciler.wake,
        sweep_tombstones=cleaner.sweep,
        probe_runtimes=reachability.probe_runtimes,
    )
    return DispatchParts(reachability, cleaner, orphans, observations, dispatcher, resync)


def _build_tombstone_cleaner(
    base: Base, commit: CommitParts, reconciler: Reconciler
) -> TombstoneCleaner:
    return TombstoneCleaner(
        base.cluster,
        commit.committer,
        base.clock,
        capacity_freed=reconciler.capacity_freed,
        wake=reconciler.wake,
        submit_effect=base.signals.effect_decided.emit,
        poll_interval=base.settings.agent_status_poll_interval,
    )


def build_membership(
    base: Base,
    commit: CommitParts,
    reconcile: ReconcileParts,
    observations: Observations,
    *,
    revoke: Revoke | None,
    is_connected: Callable[[NodeId], bool],
) -> MembershipParts:
    """Registration, leases and removal of nodes."""
    settings, clock, signals = base.settings, base.clock, base.signals
    revoking: KeyedWork[NodeId] = KeyedWork(
        base.supervisor, "revocation", clock, expects=PersysError
    )
    removed = RemovedNodes(base.cluster, revoke, revoking=revoking)
    locks = base.node_locks
    removal = NodeRemoval(base.cluster, commit.committer, clock, removed=removed, locks=locks)
    records = NodeRecords(
        base.cluster,
        commit.committer,
        clock,
        lease=settings.node_lease,
        removed=removed,
        wake_many=reconcile.reconciler.wake_many,
        node_changed=reconcile.reconciler.node_changed,
    )
    leases = NodeLeases(
        base.cluster,
        records,
        commit.modes,
        clock,
        supervisor=base.supervisor,
        lease=settings.node_lease,
        grace=settings.node_unavailable_grace,
        wake_many=reconcile.reconciler.wake_many,
        node_returned=signals.node_returned.emit,
        locks=locks,
    )
    membership = Membership(
        base.cluster,
        commit.committer,
        records,
        leases,
        observations,
        clock,
        supervisor=base.supervisor,
        cluster_id=settings.cluster_id,
        capacity_freed=reconcile.reconciler.capacity_freed,
        node_returned=signals.node_returned.emit,
        mark_stale=commit.store_watch.mark_stale,
        is_connected=is_connected,
        agent_replaced=signals.agent_replaced.emit,
        new_instance_id=base.new_uid,
        removal=removal,
        locks=locks,
    )
    return MembershipParts(removed, removal, leases, membership)


def build_node_pools(
    base: Base,
    commit: CommitParts,
    reconcile: ReconcileParts,
    membership: Membership,
    agents: AgentParts,
    machines: MachineSources,
) -> NodePoolParts:
    """Node pools: machines that join as nodes."""
    settings, clock, cluster = base.settings, base.clock, base.cluster
    vms = MachineVms(cluster, reconcile.reconciler, clock)
    leader_key = commit.leader_key
    provisioner = Provisioner(
        ClusterAddress(
            settings.cluster_id,
            uid=lambda: leader_key.marker.uid if leader_key.marker is not None else "",
            schedulers=lambda: endpoints.addresses_for_machines(settings),
        ),
        open_provider=lambda pool, credentials: machines.open_provider(pool, credentials, vms),
        open_secret=agents.secrets.open,
        issue_token=machines.issue_token,
    )
    observed = Observed(cluster, offload_after=settings.offload_after)
    locks: KeyedLock[str] = KeyedLock()
    controller = PoolController(
        cluster,
        commit.committer,
        membership,
        observed,
        provisioner,
        clock,
        cluster_id=settings.cluster_id,
        may_act=lambda: not commit.modes.is_frozen and commit.leader_lease.is_confirmed,
        work=KeyedWork(base.supervisor, "nodepool", clock, expects=PersysError),
        locks=locks,
        metrics=base.metrics,
        pass_interval=settings.reconcile_interval,
        retained_volumes=volume_counter(agents.agents),
    )
    base.signals.records_loaded.connect(lambda _: controller.wake())
    base.signals.mode_normal.connect(lambda _: controller.wake())
    pools = NodePools(
        cluster,
        commit.committer,
        clock,
        cluster_id=settings.cluster_id,
        check_provider=provisioner.check,
        changed=controller.wake,
        locks=locks,
    )
    forecast = PoolForecast(cluster, observed, controller, provisioner, clock)
    return NodePoolParts(pools, controller, forecast)


def build_sets(base: Base, commit: CommitParts, reconcile: ReconcileParts) -> SetParts:
    """Sets: the records that users change, and the loop that changes their members."""
    cluster, clock, signals = base.cluster, base.clock, base.signals
    states = MemberStates(cluster, clock)
    controller = SetController(
        cluster,
        commit.committer,
        reconcile.reconciler,
        states,
        clock,
        may_act=lambda: not commit.modes.is_frozen and commit.leader_lease.is_confirmed,
        work=KeyedWork(base.supervisor, "set", clock, expects=PersysError),
        metrics=base.metrics,
    )
    signals.member_changed.connect(controller.member_changed)
    signals.node_changed.connect(controller.node_changed)
    signals.records_loaded.connect(lambda _: controller.wake_all())
    signals.mode_normal.connect(lambda _: controller.wake_all())
    sets = Sets(
        cluster,
        commit.committer,
        reconcile.reconciler,
        states,
        clock,
        changed=controller.wake,
        check_leader=commit.leader_lease.check,
    )
    autoscaler = Autoscaler(
        cluster,
        sets,
        clock,
        query=query_value,
        may_act=lambda: not commit.modes.is_frozen and commit.leader_lease.is_confirmed,
        work=KeyedWork(base.supervisor, "autoscale", clock, expects=PersysError),
    )
    views = SetViews(
        cluster,
        states,
        sets,
        clock,
        problem=controller.problem,
        scale_reason=autoscaler.reason,
    )
    return SetParts(states, controller, sets, views, autoscaler)


def build_jobs(base: Base, commit: CommitParts, reconcile: ReconcileParts) -> JobParts:
    """Jobs: the records that users change, and the loop that starts runs and changes their members."""
    cluster, clock, signals = base.cluster, base.clock, base.signals
    jobs = Jobs(
        cluster,
        commit.committer,
        reconcile.reconciler,
        clock,
        changed=signals.job_changed.emit,
        check_leader=commit.leader_lease.check,
        metrics=base.metrics,
    )
    grace = base.settings.node_unavailable_grace.total_seconds()
    controller = JobController(
        cluster,
        jobs,
        reconcile.reconciler,
        AttemptStates(cluster, clock, node_grace=grace),
        clock,
        may_act=lambda: not commit.modes.is_frozen and commit.leader_lease.is_confirmed,
        work=KeyedWork(base.supervisor, "job", clock, expects=PersysError),
    )
    signals.job_changed.connect(controller.wake)
    signals.member_changed.connect(controller.member_changed)
    signals.records_loaded.connect(lambda _: controller.wake_all())
    signals.mode_normal.connect(lambda _: controller.wake_all())
    return JobParts(controller, jobs, JobViews(cluster, jobs, clock))


def build_endpoint_table(base: Base) -> EndpointTable:
    """The endpoints of services."""
    table = EndpointTable(base.cluster, base.signals.endpoints_changed)
    base.signals.service_member_changed.connect(table.note)
    base.signals.node_changed.connect(table.node_changed)
    return table


def connect(
    base: Base,
    reconcile: ReconcileParts,
    agents: AgentParts,
    dispatch: DispatchParts,
    leases: NodeLeases,
    discovery: Discovery | None,
) -> None:
    """Link each signal to the parts that react to it, in this order."""
    signals, cluster = base.signals, base.cluster
    cleaner, reachability = dispatch.tombstone_cleaner, dispatch.reachability
    reconciler = reconcile.reconciler

    def close_old_connections(node_id: NodeId) -> None:
        node = cluster.nodes.get(node_id)
        agents.agents.node_changed(node_id, node.node.endpoint if node is not None else None)

    signals.effect_decided.connect(dispatch.dispatcher.submit)
    signals.copy_left.connect(cleaner.request_removal)
    signals.node_changed.connect(close_old_connections)
    if discovery is not None:
        signals.node_changed.connect(discovery.node_changed)
        signals.endpoints_changed.connect(discovery.service_changed)
    signals.node_called.connect(lambda call: reachability.note(call.node_id, call.problem))
    signals.node_replies.connect(cleaner.request_removals)
    signals.node_returned.connect(
        reachability.reset,
        reachability.probe_runtimes,
        cleaner.request_removals,
        lambda node_id: reconciler.wake_many(cluster.unconverged_on(node_id)),
    )
    signals.agent_replaced.connect(
        lambda node_id: agents.streams.end(node_id, "another agent has registered as this node")
    )
    signals.state_changed.connect(dispatch.resync.poll_soon)
    signals.records_loaded.connect(
        lambda _: agents.secrets.check_key(), lambda _: reconciler.wake_all()
    )
    signals.leader_confirmed.connect(lambda _: dispatch.dispatcher.resume())
    signals.mode_normal.connect(
        lambda _: leases.renew_all(),
        lambda _: reconciler.wake_all(),
        lambda _: dispatch.dispatcher.resume(),
    )
