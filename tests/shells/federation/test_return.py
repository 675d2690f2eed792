"""A workload that is offloaded to a real remote cluster when the home cluster is full, and returns."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from persys.model.placement import Offload, Rules
from persys.wire.control.placement import rules_message
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.federation.two_clusters import NODE, TwoClusters, a_spec, holds, two_clusters
from shells.scheduler.harness import eventually

RETURNS = Rules(offload=Offload.WHEN_FULL, return_when_free=True)


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[TwoClusters]:
    soon = {"offload_after": timedelta(seconds=1)}
    async with two_clusters(tmp_path, home=soon) as running:
        yield running


async def offload(both: TwoClusters) -> pb.WorkloadView:
    """It waits, since the home cluster has no node of its own, and is offloaded then."""
    spec = a_spec()
    spec.placement.CopyFrom(rules_message(RETURNS))
    await both.home.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))
    assert (await both.home.control.workload("web")).status == "Pending"
    view = await both.home.control.until("web", "Running")
    assert view.assigned_node_id == NODE
    return view


async def test_it_is_offloaded_after_the_waiting_time_and_returns(both: TwoClusters) -> None:
    view = await offload(both)
    assert "tier 0: no nodes" in view.placement
    assert holds(both.machine, "web")
    home = await both.home.join("n1")

    async def returned() -> bool:
        found = await both.home.control.workload("web")
        return (found.assigned_node_id, found.status) == ("n1", "Running")

    await eventually(returned, lambda: "web to run in the home cluster")
    await both.until_remote_is()
    assert "web" in home.agent.running()


async def test_a_failed_return_does_not_restart_the_offloaded_copy(both: TwoClusters) -> None:
    await offload(both)
    before = await both.remote.control.workload(both.copy_of("web"))
    home = await both.home.prepare("n1")
    home.agent.behaviour.failures["web"] = ("RUNTIME_ERROR", "no such device")
    await home.join()

    async def failed() -> bool:
        found = await both.home.control.workload("web")
        return "its return failed" in found.placement and found.status == "Running"

    await eventually(failed, lambda: "the return to fail")
    after = await both.remote.control.workload(both.copy_of("web"))
    assert (await both.home.control.workload("web")).assigned_node_id == NODE
    assert (after.status, after.epoch) == ("Running", before.epoch)
    assert (after.revision_id, after.last_updated) == (before.revision_id, before.last_updated)
