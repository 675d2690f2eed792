"""Every change by a person leaves an event with the identity and the address of the caller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from builders import a_workload
from certified import Root
from persys.infra.clock import SystemClock
from persys.infra.door import PASSED_IDENTITY, PASSED_SOURCE
from persys.model.identity import Role
from persys.model.resources import Resources
from persys.store.memory import MemoryStore
from persys.wire import records
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Audit
from shells.scheduler.harness import Cluster, Control, a_cluster, brisk, eventually
from shells.scheduler.peer import Agent, Context, Copy
from shells.scheduler.seats import Seats, until_standing_by
from shells.scheduler.stores import TroubledStore

OPERATOR = "operator/alice"
AUDITED = {row.name for row in METHODS.values() if row.audit is not Audit.NONE}
Call = Callable[[Any], Awaitable[Any]]


class Host(Agent):
    """An agent with an image, a volume, and sessions."""

    async def ListImages(  # noqa: N802
        self, request: agent_pb2.ListImagesRequest, context: Context
    ) -> agent_pb2.ListImagesResponse:
        return agent_pb2.ListImagesResponse(images=[agent_pb2.ImageView(name="debian-12")])

    async def RemoveImage(  # noqa: N802
        self, request: agent_pb2.RemoveImageRequest, context: Context
    ) -> agent_pb2.RemoveImageResponse:
        return agent_pb2.RemoveImageResponse(success=True)

    async def ListVolumes(  # noqa: N802
        self, request: agent_pb2.ListVolumesRequest, context: Context
    ) -> agent_pb2.ListVolumesResponse:
        return agent_pb2.ListVolumesResponse(
            volumes=[agent_pb2.VolumeView(workload_id="old", name="data")]
        )

    async def DeleteVolume(  # noqa: N802
        self, request: agent_pb2.DeleteVolumeRequest, context: Context
    ) -> agent_pb2.DeleteVolumeResponse:
        return agent_pb2.DeleteVolumeResponse(success=True)

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ExecInput], context: Context
    ) -> None:
        await anext(requests)
        await context.write(agent_pb2.ExecOutput(exit=agent_pb2.ExecExit()))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
async def cluster(root: Root, tmp_path: Path) -> AsyncIterator[Cluster]:
    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "alice")
    settings = brisk(secrets_key_file=str(tmp_path / "key"))
    async with a_cluster(store, settings, tls=tls, user=user) as running:
        yield running
    await store.store.close()


async def populated(cluster: Cluster, root: Root) -> None:
    """A node with a running workload and an orphan."""
    node = await cluster.prepare("n1", tls=root.tls(Role.AGENT, "n1"), types=("container", "vm"))
    await node.agent.stop()
    host = node.agent = Host()
    host.credentials = root.tls(Role.AGENT, "n1").certificates.server_credentials()
    await host.start()
    await node.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    status = agent_pb2.WorkloadStatus(
        id="ghost", actual_state=agent_pb2.ACTUAL_STATE_RUNNING, revision_id="r1"
    )
    host.copies["ghost"] = Copy(status)
    workload = a_workload("ghost", resources=Resources(100, 64))
    host.intents = [agent_pb2.IntentView(id="ghost", epoch=4, intent=records.encode(workload))]


async def until_orphaned(cluster: Cluster) -> None:
    async def noted() -> bool:
        answer = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
        return any(one.workload_id == "ghost" and one.adoptable for one in answer.drifts)

    await eventually(noted, lambda: "the orphan to be noted")


async def exec_messages() -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=pb.ExecStart(workload_id="web", command=["sh", "-c", "secret"]))


async def console_messages() -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=pb.ExecStart(workload_id="web", console=True))


async def image_messages() -> AsyncIterator[pb.AddImageRequest]:
    yield pb.AddImageRequest(start=pb.AddImageStart(name="debian-13", url="http://127.0.0.1:9/x"))


async def events(cluster: Cluster, after: int) -> list[pb.EventView]:
    request = pb.ListEventsRequest(after_sequence=after)
    return list((await cluster.control.stub.ListEvents(request, timeout=10)).events)


async def last_sequence(cluster: Cluster) -> int:
    answer = await cluster.control.stub.ListEvents(pb.ListEventsRequest(limit=1), timeout=10)
    sequence: int = answer.last_sequence
    return sequence


NODE = pb.NodeRequest(node_id="n1")
ORPHAN = pb.OrphanRequest(node_id="n1", workload_id="ghost")
RETRIED = pb.RetryWorkloadRequest(workload_id="web")
SUGGESTION = pb.AutomationSuggestion(
    suggestion_id="s1",
    target_workload="web",
    action_type=pb.AUTOMATION_ACTION_SET_DESIRED_STATE,
    desired_state="stop",
)

# One request of each kind that works on a populated cluster, and the event that it leaves.
SIMPLE: dict[str, tuple[Any, str]] = {
    "AdoptOrphan": (ORPHAN, "OrphanAdopted"),
    "RetryWorkload": (RETRIED, "WorkloadRetryAsked"),
    "RedeployWorkload": (
        pb.RedeployWorkloadRequest(workload_id="web"),
        "WorkloadRedeployAsked",
    ),
    "SubmitAutomationSuggestion": (
        pb.SubmitAutomationSuggestionRequest(suggestion=SUGGESTION),
        "SuggestionAccepted",
    ),
    "CordonNode": (NODE, "NodeCordoned"),
    "UncordonNode": (NODE, "NodeUncordoned"),
    "TaintNode": (pb.TaintNodeRequest(node_id="n1", taints=["gpu"]), "NodeTainted"),
    "PutSecret": (pb.PutSecretRequest(name="s", value=b"x"), "SecretStored"),
    "DeleteSecret": (pb.DeleteSecretRequest(name="s"), "SecretDeleted"),
    "CreateToken": (pb.CreateTokenRequest(name="ops", role="viewer"), "TokenCreated"),
    "RemoveImage": (pb.RemoveImageRequest(name="debian-12"), "ImageRemoved"),
    "DeleteVolume": (
        pb.DeleteVolumeRequest(node_id="n1", workload_id="old", name="data"),
        "VolumeDeleted",
    ),
    "DrainNode": (pb.DrainNodeRequest(node_id="n1"), "NodeDrainAsked"),
    "DeleteWorkload": (pb.DeleteWorkloadRequest(workload_id="web"), "WorkloadDeleteAsked"),
}


async def test_every_simple_change_names_its_caller(cluster: Cluster, root: Root) -> None:
    await populated(cluster, root)
    await until_orphaned(cluster)
    tls = root.tls(Role.ADMIN, "bob")
    bob = Control(cluster.settings.grpc_port, tls)
    for name, (request, kind) in SIMPLE.items():
        before = await last_sequence(cluster)
        answer = await getattr(bob.stub, name)(request, timeout=20)
        assert getattr(answer, "accepted", True), f"{name}: {answer}"
        assert getattr(answer, "success", True), f"{name}: {answer}"
        found = [one for one in await events(cluster, before) if one.kind == kind]
        assert [one.identity for one in found] == ["admin/bob"], name
        assert found[0].source.startswith("127.0.0.1:"), name
    await bob.channel.close()


@pytest.mark.parametrize(
    ("rpc", "messages", "kind", "text"),
    [
        ("Exec", exec_messages, "ExecStarted", "sh"),
        ("Exec", console_messages, "ConsoleOpened", ""),
        ("AddImage", image_messages, "ImageAdded", "debian-13"),
        ("SaveSnapshot", pb.SaveSnapshotRequest, "SnapshotSaved", ""),
    ],
)
async def test_a_stream_is_in_the_history_from_its_start(
    cluster: Cluster, root: Root, rpc: str, messages: Callable[[], Any], kind: str, text: str
) -> None:
    await populated(cluster, root)
    call = getattr(cluster.control.stub, rpc)(messages(), timeout=20)
    with suppress(grpc.aio.AioRpcError):  # what came of it does not matter
        async for _ in call:
            pass

    (event,) = [one for one in await events(cluster, 0) if one.kind == kind]
    assert (event.identity, event.message) == ("admin/alice", text)
    assert event.workload_id == ("web" if rpc == "Exec" else "")


async def test_reading_and_what_changes_nothing_leave_no_event(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    before = await last_sequence(cluster)

    await cluster.control.apply("web")
    await cluster.control.names()

    assert await events(cluster, before) == []


async def test_a_call_through_a_gateway_names_the_person_and_the_gateway(
    cluster: Cluster, root: Root
) -> None:
    gateway = Control(cluster.settings.grpc_port, root.tls(Role.GATEWAY, "g1"))
    metadata = ((PASSED_IDENTITY, OPERATOR), (PASSED_SOURCE, "198.51.100.7"))
    request = pb.PutSecretRequest(name="s", value=b"x")
    assert (await gateway.stub.PutSecret(request, timeout=10, metadata=metadata)).accepted

    (event,) = [one for one in await events(cluster, 0) if one.kind == "SecretStored"]
    assert (event.identity, event.source) == ("operator/alice via gateway/g1", "198.51.100.7")
    await gateway.channel.close()


async def test_nobody_else_names_another_caller_or_source(cluster: Cluster, root: Root) -> None:
    mallory = Control(cluster.settings.grpc_port, root.tls(Role.OPERATOR, "mallory"))
    metadata = ((PASSED_IDENTITY, "admin/alice"), (PASSED_SOURCE, "198.51.100.7"))
    request = pb.PutSecretRequest(name="s", value=b"x")
    assert (await mallory.stub.PutSecret(request, timeout=10, metadata=metadata)).accepted

    (event,) = [one for one in await events(cluster, 0) if one.kind == "SecretStored"]
    assert event.identity == "operator/mallory"
    assert event.source.startswith("127.0.0.1:")
    await mallory.channel.close()


async def test_a_call_through_a_standby_names_the_caller_of_the_standby(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    seats = Seats(store)
    try:
        for name in ("s1", "s2"):
            control = await seats.add(
                tls=root.tls(Role.SCHEDULER, name), user=root.tls(Role.OPERATOR, "alice")
            )
        await until_standing_by(control)
        assert (await control.apply("web")).success
        answer = await control.stub.ListEvents(
            pb.ListEventsRequest(kinds=["WorkloadCreated"]), timeout=10
        )
        (event,) = answer.events
        assert event.identity == OPERATOR
        assert event.source.startswith("127.0.0.1:")
    finally:
        await seats.close()
        await store.close()


async def test_what_happens_later_does_not_name_the_caller(cluster: Cluster, root: Root) -> None:
    await populated(cluster, root)
    running = [one for one in await events(cluster, 0) if one.kind == "WorkloadRunning"]

    assert [one.identity for one in running] == [""]


async def test_an_exec_is_served_while_nothing_can_be_stored(cluster: Cluster, root: Root) -> None:
    await populated(cluster, root)
    cluster.store.down = True
    await cluster.control.apply("first")  # the one that notices

    call = cluster.control.stub.Exec(exec_messages(), timeout=20)

    async with asyncio.timeout(timedelta(seconds=20).total_seconds()):
        assert (await call.read()).HasField("exit")


async def test_every_audited_rpc_is_tried_here_or_elsewhere() -> None:
    elsewhere = {
        # Their events are committed with the change, as those of their counterparts above.
        "ApplyWorkload",
        "RevokeToken",
        "DeleteOrphan",
        "ConfirmNodeDead",
        "RemoveNode",
        "ApproveSuggestion",
        "RejectSuggestion",
        # In test_recovery.
        "RestoreSnapshot",
        "RebuildFromAgents",
        "AcceptEmpty",
    }
    assert SIMPLE.keys() | elsewhere | {"Exec", "AddImage", "SaveSnapshot"} == AUDITED
