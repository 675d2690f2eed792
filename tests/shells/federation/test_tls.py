"""TLS on both sides, with separate CAs, and the token of the remote cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from persys.federation.remote import RemoteCluster
from persys.infra.clock import SystemClock
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.federation.two_clusters import (
    HOME,
    NODE,
    Link,
    a_spec,
    federation_settings,
    until_healthy,
    until_problem,
    until_registered,
)
from shells.gateway.running_gateway import a_gateway, quiet
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore

_TOKEN_SECONDS = 3600


@dataclass
class Secured:
    home: Cluster
    remote: Cluster
    link: Link
    token_file: Path
    token_id: str


async def write_token(remote: Cluster, file: Path) -> str:
    """A new token of the remote cluster, in the file. Returns its id."""
    request = pb.CreateTokenRequest(
        name="home", role="operator", ttl_seconds=_TOKEN_SECONDS, prefix="home--"
    )
    answer = await remote.control.stub.CreateToken(request, timeout=10)
    assert answer.accepted, answer.reason
    await asyncio.to_thread(file.write_text, answer.secret)
    return str(answer.token.token_id)


async def add_machine(remote: Cluster, root: Root) -> None:
    node = await remote.prepare("machine", tls=root.tls(Role.AGENT, "machine"))
    await node.agent.stop()
    node.agent.credentials = root.tls(Role.AGENT, "machine").certificates.server_credentials()
    await node.agent.start()
    await node.join()
    await until_registered(remote)


@pytest.fixture(params=["scheduler", "gateway"])
async def secured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Secured]:
    roots = {name: Root(tmp_path / name) for name in ("home", "remote")}
    async with AsyncExitStack() as stack:
        clusters = []
        for name, root in roots.items():
            settings = fast_settings(
                cluster_id=HOME if name == "home" else "far",
                secrets_key_file=str(tmp_path / f"{name}.key"),
            )
            cluster = a_cluster(
                FaultyStore(MemoryStore(SystemClock().monotonic)),
                settings,
                tls=root.tls(Role.SCHEDULER, "s1"),
                user=root.tls(Role.ADMIN, "me"),
            )
            clusters.append(await stack.enter_async_context(cluster))
        home, remote = clusters
        await add_machine(remote, roots["remote"])
        token_file = tmp_path / "token"
        token_id = await write_token(remote, token_file)
        files = roots["home"].write(Role.AGENT, NODE)
        target = {"remote_ca": str(roots["remote"].write(Role.VIEWER, "federation").roots)}
        if request.param == "gateway":
            address = f"127.0.0.1:{remote.settings.grpc_port}"
            gateway = await stack.enter_async_context(
                a_gateway(
                    quiet(insecure=False, scheduler_addr=(address,)),
                    tls=roots["remote"].tls(Role.GATEWAY, "g1"),
                )
            )
            target["remote"] = f"https://127.0.0.1:{gateway.gateway.port}"
        else:
            own = roots["remote"].write(Role.VIEWER, "federation")
            target |= {"remote_cert": str(own.certificate), "remote_key": str(own.key)}
        link_settings = federation_settings(
            tmp_path,
            home,
            remote,
            token_file=str(token_file),
            tls_ca=files.roots,
            tls_cert=files.certificate,
            tls_key=files.key,
            **target,
        )
        link = Link(link_settings, RemoteCluster)
        await link.start()
        stack.push_async_callback(link.stop)
        await until_registered(home)
        yield Secured(home, remote, link, token_file, token_id)


async def test_a_workload_runs_and_a_revoked_token_makes_it_unknown_never_absent(
    secured: Secured,
) -> None:
    home, remote = secured.home.control, secured.remote.control
    await home.send(pb.ApplyWorkloadRequest(workload_id="web", spec=a_spec()))
    await home.until("web", "Running")
    first = await remote.workload("home--web")

    answer = await remote.stub.RevokeToken(
        pb.RevokeTokenRequest(token_id=secured.token_id), timeout=10
    )
    assert answer.accepted, answer.reason
    await until_problem(secured.home, "token")
    assert (await home.workload("web")).status in ("Running", "Unknown")

    secured.token_id = await write_token(secured.remote, secured.token_file)
    await until_healthy(secured.home)
    await home.until("web", "Running")
    again = await remote.workload("home--web")
    assert (again.epoch, again.revision_id) == (first.epoch, first.revision_id)

    await home.delete("web")
    await home.until_gone("web")
    assert await remote.names() == []
