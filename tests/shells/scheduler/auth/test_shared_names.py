"""Third-party certificates whose common name is shared by all nodes, or by all users."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
import msgspec
import pytest

from persys.errors import SettingsError
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_CERTIFICATE, FORWARDED_IDENTITY, FORWARDED_SOURCE
from persys.infra.tls.identity import read_claims
from persys.infra.tls.tls import Tls
from persys.model.identity import Identity, Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore

ROLES = {"compute-agent": Role.AGENT, "persysctl": Role.OPERATOR}
CAPABILITIES = pb.NodeCapabilities(
    cpu_total_millicores=1000, memory_total_mb=1024, supported_workload_types=["container"]
)


@asynccontextmanager
async def serving(root: Root, roles: Mapping[str, Role]) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls = Tls(root.write(Role.SCHEDULER, "s1"), SystemClock(), cn_roles=roles)
    user = root.tls(Role.ADMIN, "alice")
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as cluster:
        yield cluster
    await store.store.close()


def named(root: Root, common_name: str) -> Tls:
    return Tls(root.write_named(common_name), SystemClock())


def of_node(node_id: str, endpoint: str = "127.0.0.1:1") -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=node_id, capabilities=CAPABILITIES, grpc_endpoint=endpoint
    )


def passed_by_standby(root: Root, host: str) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata that a standby forwards for an agent with a shared certificate on this host."""
    shown = read_claims(root.write_named("compute-agent").certificate.read_bytes())
    identity = Identity(Role.AGENT, "compute-agent")
    claims = msgspec.structs.replace(shown, identity=identity, shared=True)
    return (
        (FORWARDED_IDENTITY, str(identity)),
        (FORWARDED_CERTIFICATE, msgspec.json.encode(claims)),
        (FORWARDED_SOURCE, f"{host}:4711"),
    )


async def test_an_unknown_name_is_refused_with_the_setting_that_admits_it(root: Root) -> None:
    async with serving(root, {}) as cluster:
        for name, role, call in (
            ("compute-agent", "agent", "RegisterNode"),
            ("persysctl", "operator", "ListNodes"),
        ):
            control = Control(cluster.settings.grpc_port, named(root, name))
            request = pb.RegisterNodeRequest() if role == "agent" else pb.ListNodesRequest()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await getattr(control.stub, call)(request, timeout=10)
            assert error.value.details() == (
                f"certificate CN '{name}' is not recognised: expected a URI "
                "spiffe://<trust domain>/<role>/<name> or a known name; "
                f"PERSYS_TLS_CN_ROLES={name}={role} admits it"
            )
            await control.channel.close()


async def test_a_shared_name_of_users_acts_with_its_role(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        control = Control(cluster.settings.grpc_port, named(root, "persysctl"))
        assert (await control.apply("web")).success
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await control.stub.RegisterNode(of_node("n1"), timeout=10)
        assert error.value.details() == "operator/persysctl may not call RegisterNode"
        await control.channel.close()


async def test_workloads_run_on_a_node_with_a_shared_certificate(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        tls = named(root, "compute-agent")
        node = await cluster.prepare(tls=tls)
        await node.agent.stop()
        node.agent.credentials = tls.certificates.server_credentials()
        await node.agent.start()
        await node.join()
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")


async def test_a_node_with_a_shared_certificate_belongs_to_its_first_host(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        agent = Control(cluster.settings.grpc_port, named(root, "compute-agent"))
        standby = Control(cluster.settings.grpc_port, root.tls(Role.SCHEDULER, "s2"))
        assert (await agent.stub.RegisterNode(of_node("n1"), timeout=10)).accepted
        assert (await agent.stub.RegisterNode(of_node("n1"), timeout=10)).accepted
        await agent.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)

        for call in range(2):
            beside = passed_by_standby(root, "10.0.0.9")
            if call == 0:
                response = await standby.stub.RegisterNode(
                    of_node("n1"), timeout=10, metadata=beside
                )
                text = response.reason
                assert not response.accepted
            else:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await standby.stub.Heartbeat(
                        pb.HeartbeatRequest(node_id="n1"), timeout=10, metadata=beside
                    )
                text = error.value.details() or ""
            assert "node n1 with a shared certificate is bound to host 127.0.0.1" in text
            assert "this call is from 10.0.0.9: persysctl node remove n1" in text
        near = passed_by_standby(root, "127.0.0.1")
        await standby.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10, metadata=near)
        await agent.channel.close()
        await standby.channel.close()


async def test_a_stream_from_another_host_is_refused(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        agent = Control(cluster.settings.grpc_port, named(root, "compute-agent"))
        standby = Control(cluster.settings.grpc_port, root.tls(Role.SCHEDULER, "s2"))
        assert (await agent.stub.RegisterNode(of_node("n1"), timeout=10)).accepted
        call = standby.stub.ControlStream(metadata=passed_by_standby(root, "10.0.0.9"))
        await call.write(pb.ControlMessage(register=of_node("n1")))
        response = await call.read()
        assert not response.registered.accepted
        assert "bound to host 127.0.0.1" in response.registered.reason
        call.cancel()
        await agent.channel.close()
        await standby.channel.close()


async def test_the_host_of_a_node_survives_a_restart_and_ends_with_the_removal(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        agent = Control(cluster.settings.grpc_port, named(root, "compute-agent"))
        standby = Control(cluster.settings.grpc_port, root.tls(Role.SCHEDULER, "s2"))
        assert (await agent.stub.RegisterNode(of_node("n1"), timeout=10)).accepted
        await cluster.stop()
        await cluster.start()
        beside = passed_by_standby(root, "10.0.0.9")
        refused = await standby.stub.RegisterNode(
            of_node("n1"), timeout=10, metadata=beside, wait_for_ready=True
        )
        assert not refused.accepted

        await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)
        removed = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
        assert removed.accepted, removed.reason
        taken = await standby.stub.RegisterNode(of_node("n1"), timeout=10, metadata=beside)
        assert taken.accepted, taken.reason
        await agent.channel.close()
        await standby.channel.close()


async def test_a_shared_certificate_does_not_take_over_a_node_with_its_own(root: Root) -> None:
    async with serving(root, ROLES) as cluster:
        own = Control(cluster.settings.grpc_port, root.tls(Role.AGENT, "n1"))
        agent = Control(cluster.settings.grpc_port, named(root, "compute-agent"))
        assert (await own.stub.RegisterNode(of_node("n1"), timeout=10)).accepted

        response = await agent.stub.RegisterNode(of_node("n1"), timeout=10)
        assert not response.accepted
        assert response.reason.startswith("node n1 has registered with a certificate of its own")
        with pytest.raises(grpc.aio.AioRpcError):
            await agent.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)
        await own.channel.close()
        await agent.channel.close()


def test_a_common_name_cannot_have_a_role_that_does_not_exist() -> None:
    with pytest.raises(SettingsError, match="PERSYS_TLS_CN_ROLES=x=root: expected "):
        fast_settings(tls_cn_roles={"x": "root"})
