"""A workload whose log streams and sessions start and then stay idle."""

import asyncio
from collections.abc import AsyncIterator

from persys.model.identity import Role
from persys.wire.gen.agent.v1 import agent_pb2
from root_ca import Root
from shells.scheduler.harness import Cluster
from shells.scheduler.third_party_agent import Agent, Context


class IdleAgent(Agent):
    """Its log streams and sessions start and then stay idle."""

    async def StreamLogs(  # noqa: N802
        self, request: agent_pb2.LogsRequest, context: Context
    ) -> AsyncIterator[agent_pb2.LogChunk]:
        yield agent_pb2.LogChunk(data=b"one\n", stream="stdout")
        await asyncio.Event().wait()

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ExecInput], context: Context
    ) -> None:
        await anext(requests)
        await context.write(agent_pb2.ExecOutput())
        await asyncio.Event().wait()


async def with_an_idle_workload(cluster: Cluster, root: Root) -> None:
    node = await cluster.prepare("n1", tls=root.tls(Role.AGENT, "n1"))
    await node.agent.stop()
    node.agent = IdleAgent()
    node.agent.credentials = root.tls(Role.AGENT, "n1").certificates.server_credentials()
    await node.agent.start()
    await node.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
