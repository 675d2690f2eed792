"""Workloads of another cluster on a real scheduler: they are stopped when that cluster is silent.

There are no nodes: the desired state shows what was decided.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER
from persys.infra.clock import SystemClock
from persys.model.identity import Role
from persys.scheduler.membership.home_contacts import STOPS_AT_ONCE
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.metadata_keys import HOME
from root_ca import Root
from shells.scheduler.auth.test_prefix_tokens import Limited, a_token
from shells.scheduler.calls import quiet
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually
from shells.scheduler.stores import FaultyStore

GUEST, LIMIT_SECONDS = "home--web", 300


@pytest.fixture
async def cluster(root: Root) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, admin = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, quiet(), tls=tls, user=admin) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def home(cluster: Cluster) -> Limited:
    return Limited(cluster.control, await a_token(cluster.control, role="operator"))


def a_guest(
    name: str = GUEST, *, seconds: int = LIMIT_SECONDS, **fields: Any
) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=64),
        container=pb.ContainerSpec(image="nginx"),
        metadata={HOME_CLUSTER: "home", HOME_STOP_AFTER: str(seconds)},
    )
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec, **fields)


def advance(cluster: Cluster, seconds: float) -> None:
    cluster.clock.monotonic_ahead += seconds


async def contact(home: Limited) -> None:
    await home.call("GetMode", pb.GetModeRequest())


async def until_desired(control: Control, name: str, desired: str) -> pb.WorkloadView:
    view = pb.WorkloadView()

    async def holds() -> bool:
        nonlocal view
        view = await control.workload(name)
        return view.desired_state == desired

    await eventually(holds, lambda: f"{name} to be {desired}: {view}")
    return view


async def until_checked(cluster: Cluster) -> None:
    """Wait until the loop has checked all workloads once more: it stops one that is overdue."""
    name = "marker--x"
    request = a_guest(name, seconds=1)
    request.spec.metadata[HOME_CLUSTER] = "marker"
    await cluster.control.send(request)
    await until_desired(cluster.control, name, "Stopped")
    await cluster.control.delete(name)
    await cluster.control.until_gone(name)


async def test_a_workload_of_a_silent_cluster_is_stopped_and_says_why(
    cluster: Cluster, home: Limited
) -> None:
    assert (await home.call("ApplyWorkload", a_guest())).success
    assert (await cluster.control.apply("web")).success

    advance(cluster, LIMIT_SECONDS + 1)
    view = await until_desired(cluster.control, GUEST, "Stopped")

    assert view.reason.code == "HomeSilent"
    assert "its home cluster home has not been in contact for 30" in view.reason.message
    explained = await cluster.control.stub.ExplainWorkload(
        pb.ExplainWorkloadRequest(workload_id=GUEST), timeout=10
    )
    assert view.reason.message in explained.summary
    listed = await cluster.control.stub.ListEvents(
        pb.ListEventsRequest(workload_id=GUEST, kinds=["WorkloadStopAsked"]), timeout=10
    )
    (event,) = listed.events
    assert (event.identity, event.message) == ("system/home-contact", view.reason.message)
    assert (await cluster.control.workload("web")).desired_state == "Running"


async def test_contacts_keep_it_running_and_write_nothing(cluster: Cluster, home: Limited) -> None:
    await home.call("ApplyWorkload", a_guest())
    for _ in range(3):
        advance(cluster, LIMIT_SECONDS * 0.6)
        await contact(home)
        await until_checked(cluster)
        before = cluster.store.transactions
        await contact(home)
        assert cluster.store.transactions == before

    assert (await cluster.control.workload(GUEST)).desired_state == "Running"


async def test_any_call_with_the_token_is_a_contact(cluster: Cluster, home: Limited) -> None:
    await home.call("ApplyWorkload", a_guest())
    advance(cluster, LIMIT_SECONDS * 0.9)
    await home.call("ListWorkloads", pb.ListWorkloadsRequest())
    await cluster.control.summary()
    advance(cluster, LIMIT_SECONDS * 0.9)
    await until_checked(cluster)

    assert (await cluster.control.workload(GUEST)).desired_state == "Running"


async def test_calls_of_other_tokens_are_not_contacts_of_this_cluster(
    cluster: Cluster, home: Limited
) -> None:
    await home.call("ApplyWorkload", a_guest())
    other = Limited(cluster.control, await a_token(cluster.control, prefix="east--"))
    advance(cluster, LIMIT_SECONDS + 1)
    await contact(other)

    await until_desired(cluster.control, GUEST, "Stopped")


async def test_it_runs_again_when_its_home_cluster_applies_it_again(
    cluster: Cluster, home: Limited
) -> None:
    await home.call("ApplyWorkload", a_guest())
    advance(cluster, LIMIT_SECONDS + 1)
    await until_desired(cluster.control, GUEST, "Stopped")

    assert (await home.call("ApplyWorkload", a_guest(desired_state="Running"))).success
    view = await until_desired(cluster.control, GUEST, "Running")
    await until_checked(cluster)

    assert view.reason.code != "HomeSilent"
    assert (await cluster.control.workload(GUEST)).desired_state == "Running"


async def test_a_new_leader_counts_from_the_start_of_its_leadership(
    cluster: Cluster, home: Limited
) -> None:
    await home.call("ApplyWorkload", a_guest())
    await cluster.stop()
    advance(cluster, LIMIT_SECONDS * 2)
    await cluster.start()
    await until_checked(cluster)
    assert (await cluster.control.workload(GUEST)).desired_state == "Running"

    advance(cluster, LIMIT_SECONDS + 1)
    await until_desired(cluster.control, GUEST, "Stopped")
    await cluster.stop()
    await cluster.start()

    assert "home cluster home" in (await cluster.control.workload(GUEST)).reason.message


async def test_many_workloads_are_stopped_in_bounded_batches(
    cluster: Cluster, home: Limited
) -> None:
    names = [f"home--{number}" for number in range(STOPS_AT_ONCE + 6)]
    for name in names:
        assert (await home.call("ApplyWorkload", a_guest(name))).success
    advance(cluster, LIMIT_SECONDS + 1)

    async def all_stopped() -> bool:
        listed = await cluster.control.stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=10)
        return all(view.desired_state == "Stopped" for view in listed.workloads)

    await eventually(all_stopped, lambda: "all to be stopped")


async def test_nothing_is_stopped_while_the_store_does_not_respond(
    cluster: Cluster, home: Limited
) -> None:
    await home.call("ApplyWorkload", a_guest())
    cluster.store.down = True
    advance(cluster, LIMIT_SECONDS + 1)

    async def is_degraded() -> bool:
        mode = await cluster.control.stub.GetMode(pb.GetModeRequest(), timeout=10)
        return bool(mode.mode == "degraded")

    await eventually(is_degraded, lambda: "degraded mode")
    assert (await cluster.control.workload(GUEST)).desired_state == "Running"
    cluster.store.down = False

    await until_desired(cluster.control, GUEST, "Stopped")


async def test_without_authentication_the_calling_cluster_names_itself() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, quiet()) as cluster:
        metadata = ((HOME, "home"),)
        await cluster.control.stub.ApplyWorkload(a_guest(), timeout=10, metadata=metadata)
        advance(cluster, LIMIT_SECONDS * 0.9)
        await cluster.control.stub.GetMode(pb.GetModeRequest(), timeout=10, metadata=metadata)
        advance(cluster, LIMIT_SECONDS * 0.9)
        await until_checked(cluster)
        assert (await cluster.control.workload(GUEST)).desired_state == "Running"

        advance(cluster, LIMIT_SECONDS)
        await until_desired(cluster.control, GUEST, "Stopped")
    await store.store.close()
