"""The composition root: builds the parts of a scheduler and connects them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from persys.core.dns_names import scheduler_service
from persys.core.event_retention import EventLimits
from persys.core.reconcile.effects import Effect
from persys.errors import PersysError, QuarantinedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import KeyedWork, Loop, Supervisor
from persys.infra.clock import Clock
from persys.infra.encryption import KeyFile
from persys.model.event import Numbered
from persys.model.ids import NodeId
from persys.model.placement import Tombstone
from persys.scheduler.api.context import ControlApi
from persys.scheduler.api.service import control_api
from persys.scheduler.auth.denials import DenialLog
from persys.scheduler.auth.tokens import Tokens
from persys.scheduler.commit.group_commit import Committer
from persys.scheduler.discovery import endpoints
from persys.scheduler.discovery.dns_records import QUERY_SECONDS, Discovery, NameCheck
from persys.scheduler.dispatch.agent_client import AgentClient, Connect, connect_over_grpc
from persys.scheduler.dispatch.dispatcher import Dispatcher
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.dispatch.timeout_history import TaskHistory
from persys.scheduler.dispatch.tunnel import Tunnels
from persys.scheduler.drift.orphans import Orphans
from persys.scheduler.drift.tombstones import TombstoneCleaner
from persys.scheduler.ha.leader_key import not_leading
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.scheduler.ha.standby import Standby
from persys.scheduler.membership.certificate_expiry import CertificateExpiry
from persys.scheduler.membership.heartbeat import ReportLimits
from persys.scheduler.membership.node_removal import NodeRemoval
from persys.scheduler.membership.nodes import Membership
from persys.scheduler.membership.reachability import Reachability
from persys.scheduler.membership.removed_nodes import RemovedNodes, Revoke
from persys.scheduler.metrics.census import WorkloadCensus
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.metrics.gauges import ClusterCollector, GaugeSources
from persys.scheduler.reconcile.reconciler import Reconciler, policy_of
from persys.scheduler.reconcile.resync import Resync
from persys.scheduler.reconcile.suggestions import Suggestions
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.secrets.resolver import Resolver, SecretSource
from persys.scheduler.secrets.store import SecretStore
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import follow, load_in_slices
from persys.store.open import file_bytes, secrets_key_path
from persys.store.port import Change, Snapshot, Store

log = structlog.get_logger()

QUARANTINED_NAMED_MAX = 50

REQUESTS_MAX = 2048  # changes in progress at the same time


class Scheduler:
    def __init__(
        self,
        settings: SchedulerSettings,
        store: Store,
        clock: Clock,
        *,
        connect: Connect = connect_over_grpc,
        connect_by_host: Connect = connect_over_grpc,
        random: Random | None = None,
        names: Store | None = None,
        metrics: Metrics | None = None,
        shared: bool = False,
        watches_certificates: bool = False,
        revoke: Revoke | None = None,
        vault: SecretSource | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """A simulation passes its own `connect` and `random`.

        `names` is the store that CoreDNS reads; the scheduler closes this connection. `shared`: other
        schedulers may lead on this store. `supervisor` and `metrics` belong to the process: pass both, or
        none.
        """
        self._settings = settings
        self._store = store
        self._clock = clock
        self._random = random or SystemRandom()
        self.metrics = metrics or Metrics()
        self.supervisor = supervisor or Supervisor("scheduler", clock, self.metrics.registry)
        self.cluster = ClusterState(settings.placement_strategy, node_changed=self._node_changed)
        self.census = WorkloadCensus(self.cluster, clock)
        self.has_loaded = False  # whether memory was loaded from the store once
        self._build_commit(shared=shared)
        self._build_reconcile()
        self._build_dispatch(connect, connect_by_host, vault)
        self._build_membership(revoke)
        self.expiry = CertificateExpiry(self.committer, clock) if watches_certificates else None
        self.denials = DenialLog(self.committer, clock)
        self.requests = OwnedWork(self.supervisor, limit=REQUESTS_MAX, stopped=not_leading)
        self.tokens = Tokens(self.cluster, self.committer, clock)
        self.suggestions = Suggestions(self.cluster, self.reconciler, self.committer, clock)
        self.resync = Resync(
            self.cluster,
            self.agents,
            self.observations,
            clock,
            supervisor=self.supervisor,
            wake=self.reconciler.wake,
            sweep_tombstones=self.tombstone_cleaner.sweep,
            probe_runtimes=self.reachability.probe_runtimes,
        )
        self.discovery = self._discovery(names) if names is not None else None
        self._collector = self._gauges()
        self.metrics.registry.register(self._collector)

    def _build_commit(self, *, shared: bool) -> None:
        """The mode, the committer and the leader lease."""
        settings, clock = self._settings, self._clock
        self.events = self.cluster.events
        self.modes = ModeTracker(clock, on_normal=self._all_is_well)
        self.committer = Committer(
            self._store,
            clock,
            events=EventLimits(settings.events_max, settings.events_max_age),
            modes=self.modes,
            quarantine=self.cluster.quarantine,
            new_uid=lambda: f"{self._random.getrandbits(128):032x}",
            metrics=self.metrics,
            lease_seconds=round(settings.leader_lease.total_seconds()) if shared else 0,
            remembers=lambda: bool(self.cluster.entries or self.cluster.members),
            on_reload=self._load,
            on_events=self._on_events,
        )
        self.committer.lead.endpoint = endpoints.endpoint_of(settings)
        self.leader_lease = LeaderLease(
            self.committer.lead,
            clock,
            mark_stale=self.committer.mark_stale,
            confirm=self.modes.confirm,
        )

    def _build_reconcile(self) -> None:
        """Decisions about workloads. Their effects are submitted to the parts of `_build_dispatch`."""
        settings, clock = self._settings, self._clock
        self.reconciler = Reconciler(
            self.cluster,
            self.committer,
            clock,
            policy=policy_of(settings),
            node_lease=settings.node_lease,
            node_grace=settings.node_unavailable_grace.total_seconds(),
            random=self._random,
            metrics=self.metrics,
            supervisor=self.supervisor,
            hand=self._hand,
            request_removal=self._request_removal,
        )
        self.task_history = TaskHistory(self.cluster, self.committer, self.reconciler, clock)

    def _build_dispatch(
        self, connect: Connect, connect_by_host: Connect, vault: SecretSource | None
    ) -> None:
        """Sends orders to agents and processes their replies."""
        settings, clock = self._settings, self._clock
        self.limited = ReportLimits(self.metrics)
        self.streams = Tunnels()
        key_file = KeyFile(secrets_key_path(settings.store, settings.secrets_key_file))
        self.secrets = SecretStore(self.cluster, self.committer, clock, key_file)
        self.agents = AgentClient(
            clock,
            self.streams,
            self.metrics,
            deadline=settings.agent_rpc_timeout,
            supervisor=self.supervisor,
            limited=self.limited,
            reached=self._reached,
            prove=self.cluster.prove,
            connect=connect,
            connect_by_host=connect_by_host,
            is_known_by_host=self.cluster.is_known_by_host,
            resolve=Resolver(self.secrets.open, vault).resolve,
        )
        self.reachability = Reachability(
            self.cluster,
            self.agents,
            capacity_freed=self.reconciler.capacity_freed,
            answers_again=self._request_removals,
        )
        self.tombstone_cleaner = TombstoneCleaner(
            self.cluster,
            self.committer,
            clock,
            capacity_freed=self.reconciler.capacity_freed,
            wake=self.reconciler.wake,
            hand=self._hand,
            poll_interval=settings.agent_status_poll_interval,
        )
        self.orphans = Orphans(
            self.cluster,
            self.committer,
            self.agents,
            clock,
            supervisor=self.supervisor,
            grace=settings.missing_grace_period,
            wake=self.reconciler.wake,
        )
        self.observations = Observations(
            self.cluster,
            wake=self.reconciler.wake,
            removed=self.tombstone_cleaner.removed,
            replaced=self.tombstone_cleaner.replaced,
            listed=self.orphans.listed,
            ignored=self.metrics.report_ignored,
            changed=lambda node_id: self.resync.poll_soon(node_id),
        )
        self.dispatcher = Dispatcher(
            self.cluster,
            self.agents,
            self.observations,
            clock,
            supervisor=self.supervisor,
            wake=self.reconciler.wake,
            may_order=lambda: not self.modes.is_frozen and self.leader_lease.is_confirmed,
            acknowledged=self.tombstone_cleaner.acknowledged,
            inquired=self.task_history.note,
            keep_actions=self.task_history.keep,
        )

    def _build_membership(self, revoke: Revoke | None) -> None:
        settings, clock = self._settings, self._clock
        self.removed = RemovedNodes(
            self.cluster,
            revoke,
            revoking=KeyedWork(self.supervisor, "revocation", clock, expects=PersysError),
        )
        node_locks: KeyedLock[NodeId] = KeyedLock()
        self.removal = NodeRemoval(
            self.cluster, self.committer, clock, removed=self.removed, locks=node_locks
        )
        self.membership = Membership(
            self.cluster,
            self.committer,
            self.observations,
            clock,
            supervisor=self.supervisor,
            cluster_id=settings.cluster_id,
            lease=settings.node_lease,
            grace=settings.node_unavailable_grace,
            wake_many=self.reconciler.wake_many,
            capacity_freed=self.reconciler.capacity_freed,
            node_changed=self.reconciler.node_changed,
            node_returned=self._node_returned,
            removed=self.removed,
            is_connected=lambda node_id: self.streams.get(node_id) is not None,
            holder_changed=self._holder_changed,
            new_instance_id=lambda: f"{self._random.getrandbits(128):032x}",
            removal=self.removal,
            locks=node_locks,
        )

    async def lead(self, begun: Callable[[], None] = lambda: None) -> None:
        """Run all loops of a leader until cancelled. Raises FencedError when another scheduler leads."""
        async with asyncio.TaskGroup() as group:
            for part in self.parts():
                group.create_task(part)
            await asyncio.sleep(0)  # every loop has started: calls may be served
            begun()

    async def take_over(self, name: str) -> None:
        """Take the leader key and load what is stored."""
        remembers = self.committer.remembers()
        snapshot = await self.committer.take_over(name)
        if not (self.modes.in_recovery and remembers):  # else only memory has the records
            await self._load(snapshot)
        self._begin_to_lead()

    async def resume_as_leader(self) -> None:
        """Lead after standby: the key is taken, and memory has followed the store."""
        await self.committer.resume_as_leader()
        self.reconciler.wake_many(list(self.cluster.entries))
        self._begin_to_lead()

    def _begin_to_lead(self) -> None:
        epochs, marker = self.cluster.epochs, self.committer.lead.marker
        epochs.set_first_key(marker.proof_key if marker is not None else "")
        if not self.committer.is_new_cluster:
            epochs.skip(now=self._clock.now())
        # A standby receives no heartbeats: every node gets a full lease before it is judged.
        self.membership.renew_all()
        self.removal.resume()
        self.secrets.check_key()
        if self.discovery is not None:
            self.discovery.wake()

    def standby(self, notice: Callable[[], None]) -> Standby:
        """`notice` is called when another scheduler is found to lead."""
        return Standby(
            self._store,
            self.committer.lead,
            self.modes,
            self._clock,
            load=self._set_versions,
            take=self._follow,
            remembers=self.committer.remembers,
            notice=notice,
        )

    def _follow(self, changes: Sequence[Change]) -> None:
        clock = self._clock
        follow(self.cluster, changes, lease_until=clock.monotonic(), now=clock.now())
        self.committer.follow(changes)
        self._report_quarantined()

    async def announce(self) -> None:
        """Maintain the names in DNS, as leader and as standby."""
        if self.discovery is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.discovery.run())
                group.create_task(self._name_check().run())

    def _name_check(self) -> NameCheck:
        return NameCheck(
            service=scheduler_service(endpoints.zone_of(self._settings)),
            endpoint=lambda: endpoints.endpoint_of(self._settings),
            lookup=self._look_up,
            supervisor=self.supervisor,
        )

    def _look_up(self, service: str) -> list[str]:
        from persys.infra.net.srv import find_service  # only schedulers with names in DNS need it

        return find_service(
            service, server=self._settings.dns_server, deadline_seconds=QUERY_SECONDS
        )

    def end_streams(self) -> None:
        """End streaming calls that have no deadline."""
        self.events.close()
        self.streams.close()

    async def close(self) -> None:
        self.end_streams()
        self.metrics.registry.unregister(self._collector)
        await self.agents.close()

    def parts(self) -> tuple[Coroutine[None, None, None], ...]:
        """The loops of a leader as coroutines. The first that fails ends all of them."""
        return tuple(map(self.supervisor.supervised, self.loops()))

    def loops(self) -> tuple[Loop, ...]:
        """Every loop of a leader. docs/architecture.md has the same table."""
        settings = self._settings
        return (
            Loop("commit", self.committer.run, ends_process=True),
            Loop("leadership", self.leader_lease.run, ends_process=True),
            Loop("requests", self.reconciler.own_requests, ends_process=True),
            Loop("calls", self.requests.run, ends_process=True),
            Loop("orders", self.dispatcher.run),
            Loop("channels", self.agents.run),
            Loop("reconcile", self.reconciler.run),
            Loop("lease", self.membership.run),
            Loop("reachability", self.reachability.run),
            Loop("tombstones", self.tombstone_cleaner.run),
            Loop("orphans", self.orphans.run),
            Loop("node_removal", self.removal.run),
            Loop("revocation", self.removed.run),
            Loop("denials", self.denials.run),
            Loop("reconcile_pass", partial(self.resync.reconcile, settings.reconcile_interval)),
            Loop("survey", partial(self.resync.poll_nodes, settings.drift_detect_interval)),
        )

    def api(self) -> ControlApi:
        settings = self._settings
        return control_api(self, settings, self._store, self._clock, policy_of(settings))

    def _discovery(self, names: Store) -> Discovery:
        settings, lead = self._settings, self.committer.lead
        zone = endpoints.zone_of(settings)
        # A different etcd does not hold the leader key, so writes to it cannot be fenced.
        same_etcd = not settings.discovery_etcd_endpoints
        return Discovery(
            self.cluster,
            names,
            self._clock,
            supervisor=self.supervisor,
            zone=lambda: zone._replace(cluster_uid=lead.marker.uid if lead.marker else ""),
            address=lambda: endpoints.address_of(settings),
            port=endpoints.port_of(settings),
            fence=lambda: lead.fence if same_etcd else None,
            leads=lambda: lead.fence is not None,
        )

    def _gauges(self) -> ClusterCollector:
        settings = self._settings
        return ClusterCollector(
            self.cluster,
            self.census,
            self._clock,
            GaugeSources(
                transactions=lambda: self._store.transactions,
                depths=lambda: {
                    "dirty": self.reconciler.depth(),
                    "node_lanes": self.dispatcher.depth(),
                    "commits": self.committer.depth(),
                    "waiting_for_room": len(self.cluster.waiting),
                },
                mode=lambda: self.modes.state.mode,
                leads=lambda: self.committer.lead.fence is not None,
                unanswered=self.agents.unanswered,
                records=self.committer.record_count,
                file_bytes=file_bytes(settings.store),
            ),
            lease=settings.node_lease.total_seconds(),
            grace=settings.node_unavailable_grace.total_seconds(),
        )

    def _on_events(self, events: list[Numbered], trimmed: list[int]) -> None:
        self.metrics.events_written(events)
        self.events.take(events, trimmed)

    async def _set_versions(self, snapshot: Snapshot) -> None:
        await self._load(await self.committer.set_versions(snapshot))

    async def _load(self, snapshot: Snapshot) -> None:
        lease_until = self.membership.lease_ends()
        await load_in_slices(self.cluster, snapshot, lease_until=lease_until, clock=self._clock)
        self._report_quarantined()
        self.secrets.check_key()
        self.has_loaded = True
        self.reconciler.wake_many(list(self.cluster.entries))

    def _report_quarantined(self) -> None:
        """Report each unreadable record by its key, unless there are very many, as after a downgrade."""
        quarantine = self.cluster.quarantine
        for key in quarantine.take_released():
            self.supervisor.resolved("record", key)
        unreported = quarantine.take_unreported()
        for one in unreported[:QUARANTINED_NAMED_MAX]:
            self.supervisor.record("record", one.key, QuarantinedError(one.reason))
        if len(unreported) > QUARANTINED_NAMED_MAX:
            log.error("records.quarantined", count=len(quarantine), last=unreported[-1].key)

    def _all_is_well(self) -> None:
        """Normal mode again: every node gets a full lease, every workload is reconciled."""
        self.membership.renew_all()
        self.reconciler.wake_many(list(self.cluster.entries))

    # These callbacks refer to parts that are built after their callers.

    def _hand(self, effect: Effect) -> None:
        self.dispatcher.hand(effect)

    def _request_removal(self, tombstone: Tombstone) -> None:
        self.tombstone_cleaner.request_removal(tombstone)

    def _request_removals(self, node_id: NodeId) -> None:
        self.tombstone_cleaner.request_removals(node_id)

    def _node_changed(self, node_id: NodeId) -> None:
        member = self.cluster.members.get(node_id)
        self.agents.node_changed(node_id, member.node.endpoint if member is not None else None)
        if self.discovery is not None:
            self.discovery.node_changed(node_id)

    def _holder_changed(self, node_id: NodeId) -> None:
        self.streams.end(node_id, "another agent has registered as this node")

    def _reached(self, node_id: NodeId, problem: str) -> None:
        self.reachability.note(node_id, problem)

    def _node_returned(self, node_id: NodeId) -> None:
        self.reachability.reset(node_id)
        self.reachability.probe_runtimes(node_id)
        self.tombstone_cleaner.request_removals(node_id)
        self.reconciler.wake_many(self.cluster.unconverged_on(node_id))

    def health(self) -> dict[str, Any]:
        state, marker = self.modes.state, self.committer.lead.marker
        return {
            "status": state.mode.value if self.modes.is_frozen else "ok",
            "service": "persys-scheduler",
            "mode": state.mode.value,
            "reason": state.reason,
            "modeChangedAt": state.since.isoformat(),
            "store": self._settings.store,
            "leader": self.committer.lead.name,
            "leaderEndpoint": self.committer.lead.endpoint,
            "clusterUid": marker.uid if marker else "",
            "dataAgeMs": round(self.modes.data_age().total_seconds() * 1000),
            "nodes": len(self.cluster.members),
            "workloads": len(self.cluster.entries),
        }
