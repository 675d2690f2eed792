"""Open streams end when the certificate or token behind them expires or is revoked, also while idle."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.infra.rpc.authorized_service import RECHECK_SECONDS
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import LIFETIME, RevocationList, Root
from shells.scheduler.harness import Cluster, Control
from shells.scheduler.idle_agent import with_an_idle_workload
from shells.scheduler.replicas import Replicas, until_standby

ENDS_WITHIN = RECHECK_SECONDS + 15
DENIED = grpc.StatusCode.PERMISSION_DENIED


async def only_start(start: pb.ExecStart) -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=start)
    await asyncio.Event().wait()


async def opened(control: Control, *metadata: tuple[str, str]) -> dict[str, Any]:
    """One idle stream of each kind, all of them started."""
    stub = control.stub
    request = pb.LogsRequest(workload_id="web", follow=True)
    logs = stub.StreamLogs(request, metadata=metadata)
    shell = pb.ExecStart(workload_id="web", command=["sh"])
    console = pb.ExecStart(workload_id="web", console=True)
    calls = {
        "logs": logs,
        "exec": stub.Exec(only_start(shell), metadata=metadata),
        "console": stub.Exec(only_start(console), metadata=metadata),
        "watch": stub.WatchEvents(pb.WatchEventsRequest(after_sequence=0), metadata=metadata),
    }
    for call in calls.values():
        async with asyncio.timeout(10):
            await call.read()
    return calls


async def code_at_the_end(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(ENDS_WITHIN):
        try:
            while await call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as err:
            return err.code()
        code: grpc.StatusCode = await call.code()
        return code


async def codes(calls: dict[str, Any]) -> dict[str, grpc.StatusCode]:
    ended = await asyncio.gather(*map(code_at_the_end, calls.values()))
    return dict(zip(calls, ended, strict=True))


async def test_idle_streams_end_when_their_certificate_is_revoked(
    secure: Cluster, root: Root, listed: RevocationList
) -> None:
    await with_an_idle_workload(secure, root)
    tls = root.tls(Role.OPERATOR, "eve")
    eve = Control(secure.settings.grpc_port, tls)
    calls = await opened(eve)

    listed.revoke(tls)

    assert set((await codes(calls)).values()) == {DENIED}
    await eve.channel.close()


async def test_idle_streams_end_when_their_certificate_expires(secure: Cluster, root: Root) -> None:
    await with_an_idle_workload(secure, root)
    calls = await opened(secure.control)

    secure.clock.ahead = LIFETIME + timedelta(minutes=1)

    assert set((await codes(calls)).values()) == {DENIED}


async def test_idle_streams_end_when_the_creator_of_their_token_is_revoked(
    secure: Cluster, root: Root, listed: RevocationList
) -> None:
    await with_an_idle_workload(secure, root)
    tls = root.tls(Role.ADMIN, "creator")
    creator = Control(secure.settings.grpc_port, tls)
    created = await creator.stub.CreateToken(
        pb.CreateTokenRequest(name="ops", role="operator"), timeout=10
    )
    shown = ("authorization", f"Bearer {created.secret}")
    calls = await opened(secure.control, shown)

    listed.revoke(tls)

    assert set((await codes(calls)).values()) == {grpc.StatusCode.UNAUTHENTICATED}
    with pytest.raises(grpc.aio.AioRpcError, match="that created this token has been revoked"):
        await secure.control.stub.ListNodes(pb.ListNodesRequest(), timeout=10, metadata=(shown,))
    await creator.channel.close()


async def test_an_idle_stream_through_a_standby_ends_when_its_certificate_is_revoked(
    root: Root, listed: RevocationList
) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    tls = root.tls(Role.OPERATOR, "eve")
    try:
        for name in ("s1", "s2"):
            scheduler = root.tls(Role.SCHEDULER, name, lists=[listed.read_often()])
            control = await replicas.add(tls=scheduler, user=tls)
        await until_standby(control)
        watch = control.stub.WatchEvents(pb.WatchEventsRequest(after_sequence=0))
        assert (await control.apply("web")).success
        await watch.read()

        listed.revoke(tls)

        assert await code_at_the_end(watch) is DENIED
    finally:
        await replicas.close()
        await store.close()
