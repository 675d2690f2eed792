"""A user token becomes invalid when any certificate of its creator is revoked."""

import asyncio
from datetime import timedelta

import grpc
import pytest

from persys.client.ca.client import AuthoritySource
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.identity import read_claims
from persys.infra.tls.keys import new_key, new_request
from persys.infra.tls.revocation import Revocations
from persys.infra.tls.tls import Tls
from persys.model.identity import Identity, Role
from persys.store.memory import MemoryStore
from persys.wire.ca.messages import RevokeRequest
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.ca.running_ca import RunningCa
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore

ANN = Identity(Role.ADMIN, "ann")
OFTEN = timedelta(seconds=0.05)


def tls_of(ca: RunningCa, files: CertificateFiles, *, reads_list: bool = False) -> Tls:
    source = AuthoritySource(lambda: [ca.address], files)
    lists = [Revocations(source, SystemClock(), every=OFTEN)] if reads_list else []
    return Tls(files, SystemClock(), lists=lists)


async def a_token(cluster: Cluster) -> tuple[str, str]:
    """The token as sent with a call."""
    request = pb.CreateTokenRequest(name="ci", role="viewer")
    created = await cluster.control.stub.CreateToken(request, timeout=10)
    return "authorization", f"Bearer {created.secret}"


@pytest.mark.parametrize("revoked", ["first", "renewed", "all by name"])
async def test_a_token_is_invalid_once_any_certificate_of_its_creator_is_revoked(
    ca: RunningCa, revoked: str
) -> None:
    scheduler = await asyncio.to_thread(ca.certificate, Role.SCHEDULER, "s1")
    files = await asyncio.to_thread(ca.certificate, ANN.role, ANN.name, "--ttl", "1h")
    serials = {"first": read_claims(files.certificate.read_bytes()).serial}
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls = tls_of(ca, scheduler, reads_list=True)
    other = await asyncio.to_thread(ca.certificate, Role.ADMIN, "bob")
    async with a_cluster(store, fast_settings(), tls=tls, user=tls_of(ca, files)) as cluster:
        shown = await a_token(cluster)
        request = new_request(new_key(), ANN, ())
        issued = await ca.ask(files, lambda client: client.renew(request))
        serials["renewed"] = issued.serial
        ca.clock.ahead = timedelta(minutes=90)  # the first one has expired for the CA

        requested = RevokeRequest(role=ANN.role, name=ANN.name)
        if revoked in serials:
            requested = RevokeRequest(serial=serials[revoked])
        await ca.ask(other, lambda client: client.revoke(requested))

        await until_refused(cluster, tls_of(ca, other), shown)
    await store.store.close()


async def until_refused(cluster: Cluster, tls: Tls, shown: tuple[str, str]) -> None:
    """Send the token over the connection of another user until it is rejected."""
    bob, told = Control(cluster.settings.grpc_port, tls), ""

    async def refused() -> bool:
        nonlocal told
        try:
            await bob.stub.ListNodes(pb.ListNodesRequest(), timeout=10, metadata=(shown,))
        except grpc.aio.AioRpcError as err:
            told = f"{err.code().name}: {err.details()}"
        return "that created this token has been revoked" in told

    await eventually(refused, lambda: f"the token to be refused: {told}")
    await bob.channel.close()
