"""Secrets: validated, versioned, encrypted, and in clear text only in orders to agents."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.scheduler.secrets.references import SecretSource
from persys.store.sqlite import SqliteStore
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored.snapshot import read
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.replicas import some_replicas, until_leading
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node, a_node

VALUE = b"hunter2-of-the-test"


@asynccontextmanager
async def opened(
    directory: Path, *, key: str = "secrets.key", vault: SecretSource | None = None
) -> AsyncIterator[Cluster]:
    """A scheduler on a SQLite file; after a restart in the same directory it has its records."""
    store = await SqliteStore.open(directory / "store.db", monotonic=SystemClock().monotonic)
    settings = fast_settings(secrets_key_file=str(directory / key))
    async with a_cluster(FaultyStore(store), settings, vault=vault) as cluster:
        yield cluster
    await store.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with opened(tmp_path) as one:
        yield one


async def put(cluster: Cluster, name: str, value: bytes = VALUE) -> pb.SecretAnswer:
    request = pb.PutSecretRequest(name=name, value=value)
    response: pb.SecretAnswer = await cluster.control.stub.PutSecret(request, timeout=10)
    return response


async def delete(cluster: Cluster, name: str) -> pb.SecretAnswer:
    request = pb.DeleteSecretRequest(name=name)
    response: pb.SecretAnswer = await cluster.control.stub.DeleteSecret(request, timeout=10)
    return response


async def listed(cluster: Cluster) -> list[pb.SecretView]:
    response = await cluster.control.stub.ListSecrets(pb.ListSecretsRequest(), timeout=10)
    return list(response.secrets)


def container(**env: str) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx", env=env))


async def apply(cluster: Cluster, spec: pb.WorkloadSpec) -> pb.ApplyWorkloadResponse:
    return await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))


def env_of(order: agent_pb2.ApplyWorkloadRequest) -> dict[str, str]:
    return dict(order.spec.container.env)


def content_of(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def knows_files(cluster: Cluster, node_id: str = "n1") -> Node:
    node = await cluster.prepare(node_id)
    node.features = ["files"]
    await node.join()
    return node


async def test_a_variable_has_its_value_in_the_order_and_its_name_in_the_record(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await put(cluster, "db-password")

    assert (await apply(cluster, container(PASSWORD="secret://db-password", MODE="on"))).success
    await cluster.control.until("web", "Running")

    (order,) = node.agent.applies
    assert env_of(order) == {"PASSWORD": VALUE.decode(), "MODE": "on"}
    assert list(order.secret_env) == ["PASSWORD"]
    assert VALUE not in order.intent
    assert b"secret://db-password" in order.intent


async def test_a_secret_file_is_sent_to_a_node_that_supports_files(
    cluster: Cluster,
) -> None:
    plain = await cluster.join("n1")
    node = await knows_files(cluster, "n2")
    await put(cluster, "key", b"\xff\x00binary")
    spec = container()
    spec.container.files.add(path="/etc/key", content="secret://key")
    spec.container.files.add(path="/etc/motd", content="hello", mode=0o640)

    assert (await apply(cluster, spec)).success
    await cluster.control.until("web", "Running")

    assert not plain.agent.applies
    (order,) = node.agent.applies
    assert list(order.spec.container.files) == [
        agent_pb2.FileMount(path="/etc/key", content=b"\xff\x00binary", mode=0o400, secret=True),
        agent_pb2.FileMount(path="/etc/motd", content=b"hello", mode=0o640),
    ]


async def test_a_compose_workload_gets_its_secret_variables(cluster: Cluster) -> None:
    node = await cluster.join()
    await put(cluster, "db-password")
    text = "services: {db: {image: nginx, environment: {P: '${PASSWORD}'}}}"
    stack = pb.ComposeSpec(inline_yaml=text, env={"PASSWORD": "secret://db-password"})

    assert (await apply(cluster, pb.WorkloadSpec(type="compose", compose=stack))).success
    await cluster.control.until("web", "Running")

    (order,) = node.agent.applies
    assert dict(order.spec.compose.env) == {"PASSWORD": VALUE.decode()}
    assert list(order.secret_env) == ["PASSWORD"]


async def test_a_new_version_is_used_only_after_a_redeploy(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await put(cluster, "db-password", b"first-value")
    spec = container(PASSWORD="secret://db-password", OLD="secret://db-password@1")
    await apply(cluster, spec)
    await cluster.control.until("web", "Running")

    response = await put(cluster, "db-password", b"second-value")
    assert response.secret.version == 2
    assert (await apply(cluster, spec)).success
    assert len(node.agent.applies) == 1

    await cluster.control.redeploy("web")

    async def again() -> bool:
        return len(node.agent.applies) == 2

    await eventually(again, lambda: "the second order")
    assert env_of(node.agent.applies[1]) == {"PASSWORD": "second-value", "OLD": "first-value"}


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"P": "secret://nothing"}, "spec.container.env['P']: secret nothing does not exist"),
        ({"P": "secret://known@7"}, "spec.container.env['P']: secret known has no version 7"),
        ({"P": "secret://Known"}, "spec.container.env['P']: invalid reference"),
        ({"P": "secret://known and more"}, "spec.container.env['P']: invalid reference"),
        ({"P": "secret://vault/kv/app"}, "spec.container.env['P']: invalid reference"),
    ],
)
async def test_a_spec_with_an_unknown_secret_is_refused_with_the_field(
    cluster: Cluster, env: dict[str, str], problem: str
) -> None:
    await put(cluster, "known")
    spec = container(**env)

    response = await apply(cluster, spec)
    plan = await cluster.control.stub.PlanWorkloads(
        pb.PlanWorkloadsRequest(workloads=[pb.ApplyWorkloadRequest(workload_id="web", spec=spec)]),
        timeout=10,
    )

    assert not response.success
    assert response.failure_reason == pb.INVALID_SPEC
    assert problem in response.error_message
    assert problem in plan.plans[0].reason


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("Upper", b"x", "name: invalid secret name"),
        ("a/b", b"x", "name: invalid secret name"),
        ("x" * 129, b"x", "name: invalid secret name"),
        ("empty", b"", "value: is empty"),
        ("large", bytes(64 * 1024 + 1), "at most 65536"),
    ],
)
async def test_an_invalid_secret_is_refused(
    cluster: Cluster, name: str, value: bytes, problem: str
) -> None:
    response = await put(cluster, name, value)

    assert not response.accepted
    assert problem in response.reason


async def test_a_secret_in_use_is_not_deleted_and_its_users_are_named(cluster: Cluster) -> None:
    await put(cluster, "db-password")
    await apply(cluster, container(PASSWORD="secret://db-password"))

    refused = await delete(cluster, "db-password")
    assert not refused.accepted
    assert "used by web" in refused.reason
    (view,) = await listed(cluster)
    assert list(view.used_by) == ["web"]

    await cluster.control.delete("web")
    assert (await delete(cluster, "db-password")).accepted
    assert not await listed(cluster)
    assert "not found" in (await delete(cluster, "db-password")).reason


async def test_the_newest_ten_versions_and_those_in_use_are_stored(
    cluster: Cluster,
) -> None:
    await put(cluster, "many")
    await put(cluster, "many")
    await apply(cluster, container(P="secret://many@2"))
    for _ in range(11):
        await put(cluster, "many", bytes(64 * 1024))

    (view,) = await listed(cluster)
    assert list(view.versions) == [2, *range(4, 14)]
    assert view.version == 13


async def test_secrets_are_in_clear_text_only_in_orders(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path) as cluster:
        node = await knows_files(cluster)
        node.agent.behaviour.failures["web"] = ("RUNTIME_ERROR", "it does not start")
        await put(cluster, "db-password")
        spec = container(PASSWORD="secret://db-password")
        spec.container.files.add(path="/etc/key", content="secret://db-password")
        await apply(cluster, spec)
        await cluster.control.until("web", "Failed")
        stub = cluster.control.stub
        request = pb.ApplyWorkloadRequest(workload_id="web", spec=spec)
        shown = [
            str(await cluster.control.workload("web")),
            str(await stub.ListEvents(pb.ListEventsRequest(), timeout=10)),
            str(await stub.PlanWorkloads(pb.PlanWorkloadsRequest(workloads=[request]), timeout=10)),
            str(
                await stub.ExplainWorkload(pb.ExplainWorkloadRequest(workload_id="web"), timeout=10)
            ),
            str(await listed(cluster)),
        ]
        chunks = [chunk.data async for chunk in stub.SaveSnapshot(pb.SaveSnapshotRequest())]
        shown += [str(record) for record in read(chunks).records]
        assert any("/secrets/db-password" in text for text in shown)
        assert env_of(node.agent.applies[0])["PASSWORD"] == VALUE.decode()
    files = content_of(tmp_path)
    output = "".join(capfd.readouterr())

    assert VALUE not in files
    assert VALUE.decode() not in "".join(shown)
    assert VALUE.decode() not in output
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


async def test_secrets_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as cluster:
        await put(cluster, "db-password")
    async with opened(tmp_path) as cluster:
        node = await cluster.join()
        await apply(cluster, container(P="secret://db-password"))
        await cluster.control.until("web", "Running")

        assert env_of(node.agent.applies[0]) == {"P": VALUE.decode()}


async def test_a_scheduler_without_the_key_reports_it_and_creates_no_second_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path) as cluster:
        await put(cluster, "db-password")
    async with opened(tmp_path, key="lost.key") as cluster:
        await cluster.join()
        await apply(cluster, container(P="secret://db-password"))

        failed = await cluster.control.until("web", "Failed")
        refused = await put(cluster, "other")

    assert "lost.key" in failed.reason.message
    assert not refused.accepted
    assert "1 secrets are encrypted with this key" in refused.reason
    assert not (tmp_path / "lost.key").exists()
    assert "secrets.locked" in "".join(capfd.readouterr())


async def test_a_scheduler_with_another_key_reports_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    async with opened(tmp_path / "elsewhere") as cluster:
        await put(cluster, "any")
    async with opened(tmp_path) as cluster:
        await put(cluster, "db-password")
    async with opened(tmp_path, key="elsewhere/secrets.key") as cluster:
        await cluster.join()
        await apply(cluster, container(P="secret://db-password"))
        failed = await cluster.control.until("web", "Failed")
        refused = await put(cluster, "db-password")

    assert "does not contain the key" in failed.reason.message
    assert "does not contain the key" in refused.reason


class Vault:
    """A fake of Vault's KV engine."""

    def __init__(self) -> None:
        self.kept: dict[str, Mapping[str, str]] = {"kv/app": {"password": VALUE.decode()}}
        self.is_away = False
        self.asked: list[tuple[str, int | None]] = []

    async def read(self, path: str, version: int | None) -> Mapping[str, str]:
        self.asked.append((path, version))
        if self.is_away:
            raise UnavailableError("Vault is sealed")
        if path not in self.kept:
            raise NotFoundError("secret in Vault", path)
        return self.kept[path]


async def test_vault_is_read_once_per_order_and_path(tmp_path: Path) -> None:
    vault = Vault()
    async with opened(tmp_path, vault=vault) as cluster:
        node = await cluster.join()
        reference = "secret://vault/kv/app#password"
        await apply(cluster, container(A=reference, B=reference, C=f"{reference}@3"))
        await cluster.control.until("web", "Running")

    assert env_of(node.agent.applies[0]) == dict.fromkeys("ABC", VALUE.decode())
    assert sorted(vault.asked, key=str) == [("kv/app", 3), ("kv/app", None)]


async def test_a_secret_missing_in_vault_is_a_permanent_failure(tmp_path: Path) -> None:
    async with opened(tmp_path, vault=Vault()) as cluster:
        node = await cluster.join()
        await apply(cluster, container(A="secret://vault/kv/app#user"))
        view = await cluster.control.until("web", "Failed")

    assert view.failure_reason == "INVALID_SPEC"
    assert "kv/app#user" in view.reason.message
    assert not node.agent.applies


async def test_while_vault_is_unavailable_the_order_is_retried_and_a_stop_works(
    tmp_path: Path,
) -> None:
    vault = Vault()
    async with opened(tmp_path, vault=vault) as cluster:
        node = await cluster.join()
        vault.is_away = True
        await apply(cluster, container(A="secret://vault/kv/app#password"))

        async def is_reported() -> bool:
            view = await cluster.control.workload("web")
            return "Vault is sealed" in view.reason.message

        await eventually(is_reported, lambda: "the reason")
        vault.is_away = False
        cluster.clock.ahead += timedelta(minutes=1)
        await cluster.control.until("web", "Running")
        vault.is_away = True
        await cluster.control.want("web", "Stopped")
        await cluster.control.until("web", "Stopped")

    assert len(node.agent.applies) == 2


async def test_without_vault_a_reference_to_it_fails_with_the_field(cluster: Cluster) -> None:
    await cluster.join()
    await apply(cluster, container(A="secret://vault/kv/app#password"))

    view = await cluster.control.until("web", "Failed")
    assert "spec.container.env['A']" in view.reason.message
    assert "Vault" in view.reason.message


async def test_a_standby_forwards_a_put_and_decrypts_it_when_it_leads(tmp_path: Path) -> None:
    key = str(tmp_path / "secrets.key")
    async with some_replicas() as replicas:
        await replicas.add(key_file=key)
        standby = await replicas.add(key_file=key)
        request = pb.PutSecretRequest(name="db-password", value=VALUE)
        response = await standby.stub.PutSecret(request, timeout=10)
        assert response.accepted, response.reason
        await replicas.stop(0)
        await until_leading(standby)
        async with a_node("n1", standby.stub) as node:
            await node.join()
            spec = container(P="secret://db-password")
            await standby.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))
            await standby.until("web", "Running")

    assert env_of(node.agent.applies[0]) == {"P": VALUE.decode()}


async def test_concurrent_puts_get_different_versions(cluster: Cluster) -> None:
    responses = await asyncio.gather(*(put(cluster, "many", b"%d" % n) for n in range(8)))

    assert sorted(one.secret.version for one in responses) == list(range(1, 9))


async def test_an_empty_name_is_an_invalid_argument(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await put(cluster, "")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
