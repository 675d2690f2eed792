"""A third-party gateway forwards no identity and acts with a configured role; a Persys gateway does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from persys.errors import SettingsError
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_IDENTITY
from persys.infra.rpc.rotating_channel import RotatingChannel
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, fast_settings
from shells.scheduler.replicas import Replicas, until_standby
from shells.scheduler.stores import FaultyStore


@asynccontextmanager
async def serving(root: Root, role: Role = Role.OPERATOR) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "alice")
    async with a_cluster(store, fast_settings(gateway_role=role), tls=tls, user=user) as cluster:
        yield cluster
    await store.store.close()


def third_party_tls(root: Root, common_name: str) -> Tls:
    """A gateway without a URI in its certificate and without forwarded identities."""
    return Tls(root.write_named(common_name), SystemClock())


def our_gateway(cluster: Cluster, tls: Tls) -> RotatingChannel:
    return tls.dial(Role.SCHEDULER, sends_own_identity=True)(
        f"127.0.0.1:{cluster.settings.grpc_port}"
    )


async def refusal(control: Control, name: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await control.apply(name)
    return error.value


async def events(control: Control) -> list[tuple[str, str]]:
    response = await control.stub.ListEvents(
        pb.ListEventsRequest(kinds=["WorkloadCreated"]), timeout=10
    )
    return [(event.kind, event.identity) for event in response.events]


@pytest.mark.parametrize("named", [False, True])
async def test_a_gateway_without_identities_may_write_as_an_operator(
    root: Root, named: bool
) -> None:
    tls = third_party_tls(root, "persys-gateway") if named else root.tls(Role.GATEWAY, "g1")
    name = "persys-gateway" if named else "g1"
    async with serving(root) as cluster:
        gateway = Control(cluster.settings.grpc_port, tls)
        assert (await gateway.apply("web")).success
        label = f"operator/unnamed via gateway/{name}"
        assert await events(cluster.control) == [("WorkloadCreated", label)]
        await gateway.channel.close()


async def test_a_gateway_without_identities_has_the_rights_of_its_role_and_no_more(
    root: Root,
) -> None:
    async with serving(root, Role.VIEWER) as cluster:
        gateway = Control(cluster.settings.grpc_port, root.tls(Role.GATEWAY, "g1"))
        assert await gateway.names() == []
        err = await refusal(gateway, "web")
        assert err.code() is grpc.StatusCode.PERMISSION_DENIED
        assert err.details() == (
            "viewer/unnamed may not call ApplyWorkload: gateway/g1 passes no identity and acts with "
            "PERSYS_GATEWAY_ROLE=viewer"
        )
        await gateway.channel.close()


async def test_role_gateway_limits_such_a_gateway_to_gateway_permissions(root: Root) -> None:
    async with serving(root, Role.GATEWAY) as cluster:
        gateway = Control(cluster.settings.grpc_port, root.tls(Role.GATEWAY, "g1"))
        assert await gateway.names() == []
        assert (await refusal(gateway, "web")).details() == "gateway/g1 may not call ApplyWorkload"
        await gateway.channel.close()


async def test_our_gateway_never_acts_as_an_operator_by_itself(root: Root) -> None:
    async with serving(root) as cluster, our_gateway(cluster, root.tls(Role.GATEWAY, "g1")) as way:
        stub: AgentControlStub = AgentControlStub(way)
        request = pb.ApplyWorkloadRequest(workload_id="web")
        for metadata in (None, (), (("x-request-id", "1"),)):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.ApplyWorkload(request, timeout=10, metadata=metadata)
            assert error.value.details() == "gateway/g1 may not call ApplyWorkload"
        passed = ((FORWARDED_IDENTITY, "viewer/bob"),)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ApplyWorkload(request, timeout=10, metadata=passed)
        assert error.value.details() == "viewer/bob may not call ApplyWorkload"


async def test_a_standby_passes_such_a_gateway_on_with_its_role(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    try:
        for name in ("s1", "s2"):
            control = await replicas.add(
                tls=root.tls(Role.SCHEDULER, name), user=root.tls(Role.GATEWAY, "g1")
            )
        await until_standby(control)
        assert (await control.apply("web")).success
        assert await events(control) == [("WorkloadCreated", "operator/unnamed via gateway/g1")]
    finally:
        await replicas.close()
        await store.close()


@pytest.mark.parametrize("role", [Role.AGENT, Role.SCHEDULER, Role.CA])
def test_a_gateway_cannot_be_given_a_role_of_a_service(role: Role) -> None:
    with pytest.raises(SettingsError, match=f"PERSYS_GATEWAY_ROLE={role}: expected viewer or"):
        fast_settings(gateway_role=role)
