"""A scheduler, composed of the parts that `build.py` builds: its loops, its API and its life as leader or
standby."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from persys.core.dns_names import Zone, scheduler_service
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Loop, Supervisor
from persys.infra.clock import Clock
from persys.infra.encryption import KeyFile
from persys.providers.open import open_provider
from persys.scheduler import build
from persys.scheduler.api.service import ControlApi, control_api
from persys.scheduler.auth.audit import DenialLog
from persys.scheduler.auth.tokens import Tokens
from persys.scheduler.build import MachineSources
from persys.scheduler.discovery import endpoints
from persys.scheduler.discovery.dns_records import QUERY_SECONDS, Discovery, NameCheck
from persys.scheduler.discovery.service_records import ClusterNames, ServiceRecords
from persys.scheduler.dispatch.agent_client import Connect, connect_over_grpc
from persys.scheduler.ha.leader_key import not_leading
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.scheduler.ha.standby import Standby
from persys.scheduler.membership.certificate_expiry import CertificateExpiry
from persys.scheduler.membership.home_contacts import HomeContacts
from persys.scheduler.membership.removed_nodes import Revoke
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.metrics.gauges import ClusterCollector, GaugeSources
from persys.scheduler.metrics.workload_counts import WorkloadCounter
from persys.scheduler.reconcile.reconciler import policy_of
from persys.scheduler.reconcile.suggestions import Suggestions
from persys.scheduler.secrets.references import SecretSource
from persys.scheduler.services.services import Services
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.signals import Signals
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.event_log import EventLog
from persys.store.open import file_bytes
from persys.store.port import Snapshot, Store, WatchEvent

log = structlog.get_logger()

REQUESTS_MAX = 2048  # changes in progress at the same time


class Scheduler:
    """A scheduler on one store: leads, or follows as standby."""

    leader_lease_type: type[LeaderLease] = LeaderLease

    def __init__(
        self,
        settings: SchedulerSettings,
        store: Store,
        clock: Clock,
        *,
        name: str,
        connect: Connect = connect_over_grpc,
        connect_by_host: Connect = connect_over_grpc,
        random: Random | None = None,
        names: Store | None = None,
        metrics: Metrics | None = None,
        shared: bool = False,
        watches_certificates: bool = False,
        revoke: Revoke | None = None,
        vault: SecretSource | None = None,
        secrets_key: KeyFile | None = None,
        supervisor: Supervisor | None = None,
        machines: MachineSources | None = None,
    ) -> None:
        """`name` identifies this scheduler among those on the store.

        A simulation passes its own `connect`, `random` and `secrets_key`. `names` is the store that CoreDNS
        reads; the scheduler closes this connection. `shared`: other schedulers may lead on this store.
        `supervisor` and `metrics` belong to the process: pass both, or none.
        """
        self._settings = settings
        self._zone = endpoints.zone_of(settings)
        self._store = store
        self._clock = clock
        self.metrics = metrics or Metrics()
        self.supervisor = supervisor or Supervisor("scheduler", clock, self.metrics.registry)
        base = self._base(random or SystemRandom())
        self.cluster = base.cluster
        commit = self._build_commit(base, name=name, shared=shared)
        agents = build.build_agents(
            base,
            commit,
            connect=connect,
            connect_by_host=connect_by_host,
            vault=vault,
            secrets_key=secrets_key,
        )
        self.limited, self.streams = agents.limited, agents.streams
        self.secrets, self.agents = agents.secrets, agents.agents
        self._build_features(base, commit, agents, revoke=revoke, names=names)
        self._build_sets(base, commit)
        self._build_jobs(base, commit)
        self._build_node_pools(base, commit, agents, machines or MachineSources(open_provider))
        self.expiry = CertificateExpiry(self.committer, clock) if watches_certificates else None
        self._collector = self._register_gauges()

    @property
    def events(self) -> EventLog:
        return self.cluster.events

    def _base(self, random: Random) -> build.Base:
        signals = Signals()
        cluster = ClusterState(
            self._settings.placement_strategy,
            node_changed=signals.node_changed.emit,
            member_changed=signals.member_changed.emit,
            service_changed=signals.service_member_changed.emit,
        )
        return build.Base(
            self._settings,
            self._store,
            self._clock,
            random,
            self.metrics,
            self.supervisor,
            signals,
            cluster,
        )

    def _build_commit(self, base: build.Base, *, name: str, shared: bool) -> build.CommitParts:
        commit = build.build_commit(
            base, name=name, shared=shared, new_leader_lease=self.leader_lease_type
        )
        self.modes, self.leader_key, self.loader = commit.modes, commit.leader_key, commit.loader
        self.store_watch, self.committer = commit.store_watch, commit.committer
        self.leader_lease = commit.leader_lease
        return commit

    def _build_features(
        self,
        base: build.Base,
        commit: build.CommitParts,
        agents: build.AgentParts,
        *,
        revoke: Revoke | None,
        names: Store | None,
    ) -> None:
        reconcile = self._reconcile = build.build_reconcile(base, commit)
        self.reconciler, self.task_history = reconcile.reconciler, reconcile.task_history
        dispatch = build.build_dispatch(base, commit, reconcile, agents.agents)
        self.reachability, self.orphans = dispatch.reachability, dispatch.orphans
        self.tombstone_cleaner = dispatch.tombstone_cleaner
        self.observations, self.dispatcher = dispatch.observations, dispatch.dispatcher
        self.resync = dispatch.resync
        nodes = build.build_membership(
            base,
            commit,
            reconcile,
            dispatch.observations,
            revoke=revoke,
            is_connected=lambda node_id: self.streams.get(node_id) is not None,
        )
        self.removed, self.removal = nodes.removed, nodes.removal
        self.leases, self.membership = nodes.leases, nodes.membership
        self.endpoint_table = build.build_endpoint_table(base)
        self.services = Services(base.cluster, commit.committer, base.clock, zone=self.zone)
        self.names = self._cluster_names()
        base.signals.node_changed.connect(self.names.node_changed)
        self.discovery = self._discovery(names) if names is not None else None
        build.connect(base, reconcile, agents, dispatch, self.leases, self.discovery)
        self.home_contacts = HomeContacts(self.cluster, self.reconciler, self.modes, base.clock)
        self.denials = DenialLog(self.committer, base.clock)
        self.requests = OwnedWork(self.supervisor, limit=REQUESTS_MAX, stopped=not_leading)
        self.tokens = Tokens(self.cluster, self.committer, base.clock)
        self.workload_counter = WorkloadCounter(self.cluster, base.clock)

    def _build_sets(self, base: build.Base, commit: build.CommitParts) -> None:
        parts = build.build_sets(base, commit, self._reconcile)
        self.sets, self.set_controller = parts.sets, parts.controller
        self.set_states, self.set_views = parts.states, parts.views
        self.autoscaler = parts.autoscaler
        self.suggestions = Suggestions(
            self.cluster, self.reconciler, self.committer, self.sets, base.clock
        )

    def _build_jobs(self, base: build.Base, commit: build.CommitParts) -> None:
        parts = build.build_jobs(base, commit, self._reconcile)
        self.jobs, self.job_controller, self.job_views = parts.jobs, parts.controller, parts.views

    def _build_node_pools(
        self,
        base: build.Base,
        commit: build.CommitParts,
        agents: build.AgentParts,
        machines: MachineSources,
    ) -> None:
        parts = build.build_node_pools(
            base, commit, self._reconcile, self.membership, agents, machines
        )
        self.node_pools, self.pool_controller = parts.pools, parts.controller
        self.pool_forecast = parts.forecast

    async def lead(self, begun: Callable[[], None] = lambda: None) -> None:
        """Run all loops of a leader until cancelled. Raises FencedError when another scheduler leads."""
        async with asyncio.TaskGroup() as group:
            for part in self.parts():
                group.create_task(part)
            await asyncio.sleep(0)  # every loop has started: calls may be served
            begun()

    async def take_over(self) -> None:
        """Take the leader key and load what is stored."""
        has_records = self.store_watch.has_records()
        snapshot = await self.store_watch.take_over()
        if not (self.modes.in_recovery and has_records):  # else only memory has the records
            await self.loader.load(snapshot)
        self._begin_to_lead()

    async def resume_as_leader(self) -> None:
        """Lead after standby: the key is taken, and memory has followed the store."""
        await self.store_watch.resume_as_leader()
        self.reconciler.wake_all()
        self._begin_to_lead()

    def _begin_to_lead(self) -> None:
        epochs, marker = self.cluster.epochs, self.leader_key.marker
        epochs.set_first_key(marker.proof_key if marker is not None else "")
        if not self.store_watch.is_new_cluster:
            epochs.skip(now=self._clock.now())
        # A standby receives no heartbeats: every node gets a full lease before it is judged.
        self.leases.renew_all()
        self.home_contacts.begin_to_lead()
        self.set_controller.begin_to_lead()
        self.autoscaler.begin_to_lead()
        self.removal.resume()
        self.secrets.check_key()
        if self.discovery is not None:
            self.discovery.wake()

    def standby(self, leader_changed: Callable[[], None]) -> Standby:
        """`leader_changed` is called when another scheduler is found to lead."""
        return Standby(
            self._store,
            self.leader_key,
            self.modes,
            self._clock,
            load=self._load_followed,
            take=self._follow,
            has_records=self.store_watch.has_records,
            leader_changed=leader_changed,
        )

    async def _load_followed(self, snapshot: Snapshot) -> None:
        await self.loader.load(await self.store_watch.set_versions(snapshot))

    def _follow(self, changes: Sequence[WatchEvent]) -> None:
        self.loader.follow(changes)
        self.store_watch.follow(changes)

    async def announce(self) -> None:
        """Maintain the names in DNS, as leader and as standby."""
        if self.discovery is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.discovery.run())
                group.create_task(self._name_check().run())

    def _name_check(self) -> NameCheck:
        return NameCheck(
            service=scheduler_service(self._zone),
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
        return tuple(map(self.supervisor.keep_running, self.loops()))

    def loops(self) -> tuple[Loop, ...]:
        """Every loop of a leader. docs/explanation/architecture.md has the same table."""
        settings = self._settings
        return (
            Loop("commit", self.committer.run, ends_process=True),
            Loop("leadership", self.leader_lease.run, ends_process=True),
            Loop("requests", self.reconciler.own_requests, ends_process=True),
            Loop("calls", self.requests.run, ends_process=True),
            Loop("orders", self.dispatcher.run),
            Loop("channels", self.agents.run),
            Loop("reconcile", self.reconciler.run),
            Loop("lease", self.leases.run),
            Loop("reachability", self.reachability.run),
            Loop("tombstones", self.tombstone_cleaner.run),
            Loop("orphans", self.orphans.run),
            Loop("node_removal", self.removal.run),
            Loop("revocation", self.removed.run),
            Loop("denials", self.denials.run),
            Loop("home_contacts", self.home_contacts.run),
            Loop("nodepools", self.pool_controller.run),
            Loop("sets", self.set_controller.run),
            Loop("autoscale", self.autoscaler.run),
            Loop("jobs", self.job_controller.run),
            Loop("reconcile_pass", partial(self.resync.reconcile, settings.reconcile_interval)),
            Loop("survey", partial(self.resync.poll_nodes, settings.drift_detect_interval)),
        )

    def api(self) -> ControlApi:
        settings = self._settings
        return control_api(self, settings, self._store, self._clock, policy_of(settings))

    def zone(self) -> Zone:
        """The DNS domains of this cluster."""
        marker = self.leader_key.marker
        return self._zone._replace(cluster_uid=marker.uid if marker is not None else "")

    def _cluster_names(self) -> ClusterNames:
        settings = self._settings
        return ClusterNames(
            self.cluster,
            self.endpoint_table,
            zone=self.zone,
            address=lambda: endpoints.address_of(settings),
            port=endpoints.port_of(settings),
        )

    def _discovery(self, names: Store) -> Discovery:
        settings, lead = self._settings, self.leader_key
        # A different etcd does not hold the leader key, so writes to it cannot be fenced.
        same_etcd = not settings.discovery_etcd_endpoints
        return Discovery(
            self.cluster,
            names,
            self._clock,
            services=ServiceRecords(self.cluster, self.endpoint_table, self._clock),
            supervisor=self.supervisor,
            zone=self.zone,
            address=lambda: endpoints.address_of(settings),
            port=endpoints.port_of(settings),
            fence=lambda: lead.fence if same_etcd else None,
            leads=lambda: lead.fence is not None,
        )

    def _register_gauges(self) -> ClusterCollector:
        settings = self._settings
        collector = ClusterCollector(
            self.cluster,
            self.workload_counter,
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
                leads=lambda: self.leader_key.fence is not None,
                unanswered=self.agents.unanswered,
                records=self.store_watch.record_count,
                endpoint_count=lambda service: self.endpoint_table.of(service).healthy_count,
                file_bytes=file_bytes(settings.store),
            ),
            lease=settings.node_lease.total_seconds(),
            grace=settings.node_unavailable_grace.total_seconds(),
        )
        self.metrics.registry.register(collector)
        return collector

    def health(self) -> dict[str, Any]:
        state, marker = self.modes.state, self.leader_key.marker
        return {
            "status": state.mode.value if self.modes.is_frozen else "ok",
            "service": "persys-scheduler",
            "mode": state.mode.value,
            "reason": state.reason,
            "modeChangedAt": state.since.isoformat(),
            "store": self._settings.store,
            "leader": self.leader_key.name,
            "leaderEndpoint": self.leader_key.endpoint,
            "clusterUid": marker.uid if marker else "",
            "dataAgeMs": round(self.modes.data_age().total_seconds() * 1000),
            "nodes": len(self.cluster.nodes),
            "workloads": len(self.cluster.workloads),
        }
