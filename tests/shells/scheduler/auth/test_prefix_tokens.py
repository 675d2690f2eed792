"""Tokens with a prefix at a scheduler: every RPC, and attempts to use what belongs to others."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from persys.infra.clock import SystemClock
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Method
from root_ca import Root
from shells.scheduler.calls import N1, World, a_world, quiet
from shells.scheduler.harness import Control, a_cluster, eventually
from shells.scheduler.replicas import Replicas, until_standby
from shells.scheduler.stores import FaultyStore

SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
DENIED = grpc.StatusCode.PERMISSION_DENIED
PREFIX, OWN, OTHER = "home--", "home--web", "web"


@pytest.fixture
async def world(root: Root, tmp_path: Path) -> AsyncIterator[World]:
    """A scheduler with TLS and one node, with a workload, a secret and a volume of each side."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = quiet(secrets_key_file=str(tmp_path / "key"))
    scheduler, admin = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, settings, tls=scheduler, user=admin) as cluster:
        world = await a_world(cluster, root.tls(Role.AGENT, "n1"))
        for name in (OWN, OTHER):
            await cluster.control.stub.PutSecret(
                pb.PutSecretRequest(name=name, value=b"x"), timeout=10
            )
            await cluster.control.apply(name)
            await cluster.control.until(name, "Running")
            world.host.volumes.add(name)
        yield world
    await store.store.close()


@pytest.fixture
async def limited(world: World) -> "Limited":
    return Limited(world.cluster.control, await a_token(world.cluster.control))


async def a_token(control: Control, role: str = "admin", prefix: str = PREFIX) -> str:
    request = pb.CreateTokenRequest(name="home", role=role, prefix=prefix)
    made: pb.CreateTokenResponse = await control.stub.CreateToken(request, timeout=10)
    assert made.accepted, made.reason
    assert made.token.prefix == prefix
    return made.secret


class Limited:
    """The calls of a caller with a prefix token."""

    def __init__(self, control: Control, secret: str) -> None:
        self._control = control
        self._metadata = (("authorization", f"Bearer {secret}"),)

    async def call(self, name: str, request: Any) -> Any:
        """The response, or all responses of a stream. Raises AioRpcError."""
        method = SERVICE.methods_by_name[name]
        is_message = isinstance(request, Message)
        sent = _only(request) if method.client_streaming and is_message else request
        call = getattr(self._control.stub, name)(sent, timeout=10, metadata=self._metadata)
        if not method.server_streaming:
            return await call
        return [response async for response in call]

    async def code(self, name: str, request: Any) -> tuple[grpc.StatusCode, str]:
        try:
            await self.call(name, request)
        except grpc.aio.AioRpcError as err:
            return err.code(), err.details() or ""
        return grpc.StatusCode.OK, ""

    def open(self, name: str, request: Any) -> Any:
        return getattr(self._control.stub, name)(request, timeout=30, metadata=self._metadata)


async def _only(message: Any) -> AsyncIterator[Any]:
    yield message


def a_request(name: str, value: str = "") -> Any:
    """The request with this value in each field that the scope checks."""
    message = GetMessageClass(SERVICE.methods_by_name[name].input_type)()
    scope = METHODS[name].scope
    assert scope is not None
    for path in scope.ids if value else ():
        *outer, last = path.split(".")
        where = message
        for step in outer:
            inner = getattr(where, step)
            where = inner.add() if where.DESCRIPTOR.fields_by_name[step].is_repeated else inner
        setattr(where, last, value)
    return message


def rows(*, refused: bool = False, by_id: bool = False) -> list[Method]:
    found = []
    for row in METHODS.values():
        assert row.scope is not None
        if row.scope.allowed is refused or bool(row.scope.ids) is not by_id:
            continue
        found.append(row)
    return found


async def test_every_rpc_without_a_scope_for_it_is_refused(limited: Limited) -> None:
    for row in rows(refused=True):
        code, text = await limited.code(row.name, a_request(row.name))
        assert code is DENIED, f"{row.name}: {code} {text}"
        assert PREFIX in text or "may not call" in text, f"{row.name}: {text}"


async def test_every_rpc_with_a_name_refuses_names_of_others(limited: Limited) -> None:
    for name in (OTHER, " ", "home", "home-", "home-web", "HOME--web", "xhome--web"):
        for row in rows(by_id=True):
            code, text = await limited.code(row.name, a_request(row.name, name))
            assert code is DENIED, f"{row.name} {name!r}: {code} {text}"
            assert repr(PREFIX) in text, f"{row.name} {name!r}: {text}"


async def test_every_rpc_with_a_name_accepts_its_own_names(limited: Limited) -> None:
    for row in rows(by_id=True):
        code, text = await limited.code(row.name, a_request(row.name, "home--absent"))
        assert code is not DENIED, f"{row.name}: {text}"


async def test_all_other_rpcs_are_served(limited: Limited) -> None:
    requests: dict[str, Any] = {"GetNode": pb.GetNodeRequest(node_id=N1)}
    for row in rows():
        if row.name == "WatchEvents":
            continue  # it does not end
        code, text = await limited.code(row.name, requests.get(row.name, a_request(row.name)))
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), f"{row.name}: {text}"


async def test_lists_have_only_its_own_items(limited: Limited, world: World) -> None:
    using = pb.ApplyWorkloadRequest(
        workload_id="spy",
        spec=pb.WorkloadSpec(
            type="container",
            container=pb.ContainerSpec(image="nginx", env={"X": f"secret://{OWN}"}),
        ),
    )
    assert (await world.cluster.control.send(using)).success

    workloads = await limited.call("ListWorkloads", pb.ListWorkloadsRequest())
    several = await limited.call(
        "GetWorkloads", pb.GetWorkloadsRequest(workload_ids=[OTHER, OWN, "spy"])
    )
    events = await limited.call("ListEvents", pb.ListEventsRequest())
    newest = await limited.call("ListEvents", pb.ListEventsRequest(limit=1))
    secrets = await limited.call("ListSecrets", pb.ListSecretsRequest())
    volumes = await limited.call("ListVolumes", pb.ListVolumesRequest())
    world.host.images.add("debian")
    images = await limited.call("ListImages", pb.ListImagesRequest())
    stored = await limited.call("PutSecret", pb.PutSecretRequest(name=OWN, value=b"y"))

    assert [one.workload_id for one in workloads.workloads] == [OWN]
    assert [one.workload.workload_id for one in several.found] == [OWN]
    assert {one.workload_id for one in events.events} == {OWN}
    assert [one.workload_id for one in newest.events] == [OWN]
    assert [(one.name, list(one.used_by)) for one in secrets.secrets] == [(OWN, [])]
    assert [one.workload_id for one in volumes.volumes] == [OWN]
    assert list(stored.secret.used_by) == []
    assert [(one.name, list(one.used_by)) for one in images.images] == [("debian", [])]


async def test_filters_of_a_list_do_not_show_others(limited: Limited) -> None:
    on_node = await limited.call("ListWorkloads", pb.ListWorkloadsRequest(node_id=N1))
    of_other = await limited.call("ListEvents", pb.ListEventsRequest(workload_id=OTHER))
    of_node = await limited.call("ListEvents", pb.ListEventsRequest(node_id=N1))
    of_all = await limited.call("ListEvents", pb.ListEventsRequest(after_sequence=0))

    assert [one.workload_id for one in on_node.workloads] == [OWN]
    assert list(of_other.events) == []
    assert {one.workload_id for one in (*of_node.events, *of_all.events)} == {OWN}


async def test_nodes_are_shown_without_what_belongs_to_others(
    limited: Limited, world: World
) -> None:
    control = world.cluster.control
    await control.stub.DrainNode(pb.DrainNodeRequest(node_id=N1), timeout=10)
    everything = await control.node(N1)
    assert {block.workload_id for block in everything.drain.blocked} == {OWN, OTHER}
    assert everything.grpc_endpoint

    (listed,) = (await limited.call("ListNodes", pb.ListNodesRequest())).nodes
    single = (await limited.call("GetNode", pb.GetNodeRequest(node_id=N1))).node

    for view in (listed, single):
        assert {block.workload_id for block in view.drain.blocked} == {OWN}
        assert (view.grpc_endpoint, view.status_updated_by) == ("", "")
        assert view.available_cpu_cores == everything.available_cpu_cores


async def test_a_watch_delivers_only_its_own_events(limited: Limited, world: World) -> None:
    watch = limited.open("WatchEvents", pb.WatchEventsRequest(after_sequence=0, bookmarks=True))
    control = world.cluster.control
    for name in (OTHER, OWN):
        await control.want(name, "Stopped")

    seen = []
    async for event in watch:
        seen.append(event)
        if event.kind == "WorkloadStopAsked":
            break

    assert {event.workload_id for event in seen if event.kind} == {OWN}
    watch.cancel()


async def test_explain_and_plan_do_not_name_others(limited: Limited, world: World) -> None:
    control = world.cluster.control
    await control.apply("blocker", host_port=8080)
    await control.until("blocker", "Running")
    await control.apply(f"{PREFIX}late", host_port=8080)
    await control.apply("waiting", cpu=3900)
    full = await control.stub.ExplainWorkload(
        pb.ExplainWorkloadRequest(workload_id=f"{PREFIX}late"), timeout=10
    )
    assert "blocker" in str(full)

    explained = await limited.call(
        "ExplainWorkload", pb.ExplainWorkloadRequest(workload_id=f"{PREFIX}late")
    )
    plan = await limited.call(
        "PlanWorkloads",
        pb.PlanWorkloadsRequest(
            workloads=[pb.ApplyWorkloadRequest(workload_id=OWN, desired_state="Stopped")]
        ),
    )
    capacity = await limited.call("GetCapacity", pb.GetCapacityRequest(spec=a_spec()))

    for response in (explained, plan, capacity):
        for other in ("blocker", "waiting"):
            assert other not in str(response).replace("would_wait", "")
    assert explained.counts
    assert capacity.fits


def a_spec(**placement: Any) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=1, memory_mb=1),
        container=pb.ContainerSpec(image="nginx"),
        placement=pb.PlacementRules(**placement),
    )


def with_env(value: str) -> pb.WorkloadSpec:
    spec = a_spec()
    spec.container.env["X"] = value
    return spec


def with_file(value: str) -> pb.WorkloadSpec:
    spec = a_spec()
    spec.container.files.add(path="/x", content=value)
    return spec


def with_project(name: str) -> pb.WorkloadSpec:
    stack = pb.ComposeSpec(
        source_type="inline",
        inline_yaml="services: {a: {image: nginx}}",
        project_name=name,
    )
    return pb.WorkloadSpec(type="compose", compose=stack)


def with_metadata(**metadata: str) -> pb.WorkloadSpec:
    spec = a_spec()
    spec.metadata.update({key.replace("__", "."): value for key, value in metadata.items()})
    return spec


OUTSIDE: dict[str, tuple[pb.WorkloadSpec, str]] = {
    "offload": (a_spec(offload="when-full"), "spec.placement.offload"),
    "offload_data": (a_spec(offload_data=True), "spec.placement.offload_data"),
    "return": (a_spec(**{"return": "when-free"}), "spec.placement.return"),
    "group": (a_spec(group="db"), "spec.placement.group"),
    "secret": (with_env(f"secret://{OTHER}"), "spec.container.env['X']"),
    "secret version": (with_env(f"secret://{OTHER}@1"), "spec.container.env['X']"),
    "vault": (with_env("secret://vault/home--/x#y"), "spec.container.env['X']"),
    "secret file": (with_file(f"secret://{OTHER}"), "spec.container.files[0].content"),
    "project": (with_project("shop"), "spec.compose.project_name"),
    "home": (with_metadata(persys__home_cluster="east"), "spec.metadata['persys.home_cluster']"),
    "home time": (
        with_metadata(persys__home_cluster="home", persys__home_stop_after="soon"),
        "spec.metadata['persys.home_stop_after']",
    ),
}


async def test_a_spec_cannot_use_what_belongs_to_others(limited: Limited) -> None:
    for name, (spec, field) in OUTSIDE.items():
        request = pb.ApplyWorkloadRequest(workload_id=f"{PREFIX}new", spec=spec)
        applied = await limited.call("ApplyWorkload", request)
        planned = await limited.call("PlanWorkloads", pb.PlanWorkloadsRequest(workloads=[request]))

        assert not applied.success, name
        assert field in applied.error_message, f"{name}: {applied.error_message}"
        assert applied.failure_reason == pb.INVALID_SPEC, name
        assert planned.plans[0].action == "refused", name
        assert field in planned.plans[0].reason, name


async def test_a_spec_may_use_its_own_secrets_groups_and_projects(limited: Limited) -> None:
    inside = {
        "a": with_env(f"secret://{OWN}"),
        "b": a_spec(group="home--db", offload="never"),
        "c": with_project("home--shop"),
        "d": with_metadata(persys__home_cluster="home", persys__home_stop_after="60"),
        "e": with_project(""),
    }
    for name, spec in inside.items():
        request = pb.ApplyWorkloadRequest(workload_id=f"{PREFIX}{name}", spec=spec)
        applied = await limited.call("ApplyWorkload", request)
        assert applied.success, f"{name}: {applied.error_message}"


async def test_an_exec_session_cannot_change_its_workload(limited: Limited) -> None:
    async def messages() -> AsyncIterator[pb.ExecInput]:
        yield pb.ExecInput(start=pb.ExecStart(workload_id=OWN, command=["sh"]))
        yield pb.ExecInput(start=pb.ExecStart(workload_id=OTHER, command=["sh"]))

    async def first_foreign() -> AsyncIterator[pb.ExecInput]:
        yield pb.ExecInput(start=pb.ExecStart(workload_id=OTHER, command=["sh"]))

    call = limited.open("Exec", first_foreign())
    with pytest.raises(grpc.aio.AioRpcError) as err:
        await call.read()
    assert err.value.code() is DENIED
    code, _ = await limited.code("Exec", messages())
    assert code in (grpc.StatusCode.OK, DENIED)  # the session may end before the second message


async def test_a_prefix_does_not_add_permissions(world: World) -> None:
    control = world.cluster.control
    viewer = Limited(control, await a_token(control, role="viewer"))

    code, _ = await viewer.code("DeleteWorkload", pb.DeleteWorkloadRequest(workload_id=OWN))
    shown = await viewer.call("GetIdentity", pb.GetIdentityRequest())

    assert code is DENIED
    assert (shown.role, shown.prefix) == ("viewer", PREFIX)


async def test_a_standby_limits_a_token_like_the_leader(root: Root, tmp_path: Path) -> None:
    replicas = Replicas(MemoryStore(SystemClock().monotonic), settings=quiet)
    user = root.tls(Role.ADMIN, "me")
    try:
        leader = await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        standby = await replicas.add(tls=root.tls(Role.SCHEDULER, "s2"), user=user)
        await until_standby(standby)
        for name in (OWN, OTHER):
            await leader.apply(name)
        limited = Limited(standby, await a_token(leader))

        async def is_known() -> bool:
            return (await limited.code("GetMode", pb.GetModeRequest()))[0] is grpc.StatusCode.OK

        await eventually(is_known, lambda: "the standby to know the token")
        listed = await limited.call("ListWorkloads", pb.ListWorkloadsRequest())
        mode = await limited.call("GetMode", pb.GetModeRequest())

        assert [one.workload_id for one in listed.workloads] == [OWN]
        assert mode.role == "leader"  # which records the contact
        for row in (*rows(refused=True), *rows(by_id=True)):
            code, text = await limited.code(row.name, a_request(row.name, OTHER))
            assert code is DENIED, f"{row.name}: {text}"
    finally:
        await replicas.close()
