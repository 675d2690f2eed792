"""Runs persys-federation: an agent with the remote cluster as its runtime."""

import asyncio
from random import SystemRandom

from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.secrets import journal_key_file
from persys.agent.journal.store import Journal, stored_node_id
from persys.agent.node.host import boot_id
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.tls import node_id_of, open_tls, vault_certificate_source
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.workloads.crash_recovery import Recovery, recorded_run
from persys.federation.access import RemoteSessions, RemoteUsage
from persys.federation.capacity import Offers, RemoteHost
from persys.federation.connection import open_connection
from persys.federation.events import RemoteEvents
from persys.federation.mapping import Names
from persys.federation.ports import Remote
from persys.federation.remote import RemoteCluster
from persys.federation.runtime import ClusterRuntime, RemoteVolumes
from persys.federation.settings import FederationSettings
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import Clock, SystemClock, since_boot
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.tls import Tls
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType

_SOURCE = "federation"  # of usage samples


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
            federation = Federation(settings, node_id, remote, journal, clock, tls, recovery)
            await federation.run(stop)
    finally:
        remote.close()
        connection.close()
        journal.close()


class Federation:
    def __init__(
        self,
        settings: FederationSettings,
        node_id: NodeId,
        remote: Remote,
        journal: Journal,
        clock: Clock,
        tls: Tls | None,
        recovery: Recovery,
    ) -> None:
        names, host, reports = Names(settings.cluster_id), RemoteHost(), PendingReports()
        self._events = RemoteEvents(remote, names)
        self._offers = Offers(remote, journal, host, settings.limits, changed=reports.add_node)
        runtime = ClusterRuntime(remote, names, self._events)
        self.agent = Agent(
            settings.agent(),
            node_id,
            Environment(
                journal=journal,
                runtimes=NodeRuntimes(
                    types=dict.fromkeys(WorkloadType, runtime),
                    samplers={_SOURCE: RemoteUsage(remote, names, clock)},
                ),
                volumes=RemoteVolumes(names),
                host=host,
                clock=clock,
                paths=ThreadPathCalls(roots=[]),
                connect=None,
                random=SystemRandom(),
                boot_id=boot_id(),
                pending_reports=reports,
                recovery=recovery,
                tls=tls,
                sessions=RemoteSessions(remote, names, journal),
            ),
        )

    async def run(self, stop: asyncio.Event) -> None:
        await self._offers.refresh()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part()) for part in (self._events.run, self._offers.run)]
            await self.agent.run(stop)
            for task in tasks:
                task.cancel()
