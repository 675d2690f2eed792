"""Runs persys-federation: an agent with the remote cluster as its runtime."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random, SystemRandom

from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.secrets import journal_key_file
from persys.agent.journal.store import Journal, stored_node_id
from persys.agent.node.host import boot_id
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.tls import node_id_of, open_tls, vault_certificate_source
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.uplink.link import Connect
from persys.agent.workloads.crash_recovery import Recovery, recorded_run
from persys.core.agent.garbage import Kind
from persys.errors import RuntimeUnavailableError
from persys.federation.access import RemoteSessions, RemoteUsage
from persys.federation.capacity import Offers, RemoteHost
from persys.federation.connection import open_connection
from persys.federation.events import RemoteEvents
from persys.federation.mapping import STOP_AFTER_PARTS, Names
from persys.federation.metrics import FederationMetrics
from persys.federation.ports import Remote
from persys.federation.remote import RemoteCluster
from persys.federation.runtime import ClusterRuntime, RemoteGarbage, RemoteVolumes
from persys.federation.settings import FederationSettings
from persys.infra.aio.path_calls import PathCalls, ThreadPathCalls
from persys.infra.clock import Clock, SystemClock, since_boot
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.tls import Tls
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType
from persys.model.workload import Desired

_SOURCE = "federation"  # of usage samples
CONTACT_MIN_SECONDS = 1.0
IDLE_SECONDS = 2.0


async def run_federation(settings: FederationSettings, stop: asyncio.Event) -> None:
    clock, shell = SystemClock(monotonic=since_boot), settings.agent()
    stored_id = stored_node_id(settings.state_path)
    source = vault_certificate_source(shell, clock, stored_id)
    if source is not None and not await ensure_certificate(
        shell.files, source.identity, source, clock, stop
    ):
        return
    tls = open_tls(shell, clock, source)
    node_id = node_id_of(shell, tls, stored_id)
    connection = open_connection(settings)
    remote = RemoteCluster(connection)
    journal = Journal(
        settings.state_path,
        cluster_id=settings.cluster_id,
        node_id=node_id,
        key_file=journal_key_file(settings.state_path, ""),
    )
    try:
        with recorded_run(journal, settings.state_path, stop) as recovery:
            federation = Federation(
                settings,
                node_id,
                remote,
                Surroundings(
                    journal,
                    clock,
                    ThreadPathCalls(roots=[]),
                    SystemRandom(),
                    boot_id(),
                    tls=tls,
                    recovery=recovery,
                ),
            )
            await federation.run(stop)
    finally:
        remote.close()
        connection.close()
        journal.close()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process uses besides the remote cluster. The simulation provides its own."""

    journal: Journal
    clock: Clock
    paths: PathCalls
    random: Random
    boot_id: str
    connect: Connect | None = None  # None: as an agent does
    tls: Tls | None = None
    recovery: Recovery = field(default_factory=Recovery)


class Federation:
    def __init__(
        self, settings: FederationSettings, node_id: NodeId, remote: Remote, around: Surroundings
    ) -> None:
        names, host, reports = Names(settings.cluster_id, node_id), RemoteHost(), PendingReports()
        journal, clock = around.journal, around.clock
        metrics = FederationMetrics()
        self._remote, self._journal = remote, journal
        self._events = RemoteEvents(remote, names, metrics)
        self._offers = Offers(
            remote,
            journal,
            host,
            settings.limits,
            settings.remote,
            changed=reports.add_node,
        )
        runtime = ClusterRuntime(remote, names, self._events, metrics)
        self.agent = Agent(
            settings.agent(),
            node_id,
            Environment(
                journal=journal,
                runtimes=NodeRuntimes(
                    types=dict.fromkeys(WorkloadType, runtime),
                    samplers={_SOURCE: RemoteUsage(remote, names, clock)},
                    garbage={
                        frozenset({Kind.WORKLOAD, Kind.SECRET}): RemoteGarbage(
                            remote, names, lambda: journal.entries
                        )
                    },
                ),
                volumes=RemoteVolumes(names),
                host=host,
                clock=clock,
                paths=around.paths,
                connect=around.connect,
                random=around.random,
                boot_id=around.boot_id,
                pending_reports=reports,
                recovery=around.recovery,
                tls=around.tls,
                sessions=RemoteSessions(remote, names, journal),
                registered=host.registered,
                labels=host.labels,
                refusal=runtime.refusal,
                stop_after_parts=STOP_AFTER_PARTS,
            ),
        )
        metrics.register(self.agent.registry, journal, settings.node_price)

    async def prepare(self) -> None:
        """Read the capacity of the remote cluster, which the node registers with."""
        await self._offers.refresh()

    def parts(self) -> tuple[Callable[[], Coroutine[None, None, None]], ...]:
        """What runs besides the parts of the agent."""
        return (self._events.run, self._offers.run, self._keep_contact)

    async def _keep_contact(self) -> None:
        """Call the remote cluster often enough that it does not stop workloads with `stop_after`.

        Not while the home cluster is silent: it may run them elsewhere soon.
        """
        while True:
            spans = [
                entry.order.stop_after_seconds
                for entry in self._journal.entries.values()
                if entry.order.stop_after_seconds and entry.order.desired is Desired.RUNNING
            ]
            third = min(spans, default=0) / STOP_AFTER_PARTS
            silent = self.agent.contact.silent_for()
            if third and silent is not None and silent.total_seconds() < third:
                with suppress(RuntimeUnavailableError):
                    await self._remote.mode()
            await asyncio.sleep(max(CONTACT_MIN_SECONDS, third / 3) if third else IDLE_SECONDS)

    async def run(self, stop: asyncio.Event) -> None:
        await self.prepare()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part()) for part in self.parts()]
            await self.agent.run(stop)
            for task in tasks:
                task.cancel()
