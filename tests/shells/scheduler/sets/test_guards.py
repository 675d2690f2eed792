"""Members are changed by their set only, and a set, a job and a workload do not share an id."""

import asyncio

import grpc
import pytest

from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set, ids

MEMBER = "workload web-0 is a member of set web: change the set"
IS_SET = "web is a set: use replicas in its file, or delete the set first"


async def a_steady_set(cluster: Cluster, sets: SetCalls, replicas: int = 1) -> None:
    await cluster.join()
    await sets.applied(a_set(replicas=replicas))
    await sets.until_steady()


async def test_a_member_is_not_applied_stopped_deleted_or_redeployed_by_a_user(
    cluster: Cluster, sets: SetCalls
) -> None:
    await a_steady_set(cluster, sets)
    control = cluster.control

    assert (await control.apply("web-0", image="other")).error_message == MEMBER
    assert (await control.want("web-0", "Stopped")).error_message == MEMBER
    assert (await control.delete("web-0")).error_message == MEMBER
    assert (await control.redeploy("web-0")).reason == MEMBER


async def test_a_member_is_retried_by_a_user(cluster: Cluster, sets: SetCalls) -> None:
    await a_steady_set(cluster, sets)

    assert (await cluster.control.retry("web-0")).accepted


async def test_a_workload_does_not_get_the_id_of_a_set(cluster: Cluster, sets: SetCalls) -> None:
    await a_steady_set(cluster, sets)

    assert (await cluster.control.apply("web")).error_message == IS_SET


async def test_scaling_a_workload_names_the_field_that_makes_it_a_set(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join()
    await cluster.control.apply("web")

    answer = await cluster.control.stub.ScaleSet(
        pb.ScaleSetRequest(set_id="web", replicas=2), timeout=10
    )

    assert not answer.accepted
    assert answer.reason == (
        "web is a workload, not a set: add `replicas: 2` to its file and apply it"
    )


async def test_a_plan_refuses_what_an_apply_refuses(cluster: Cluster, sets: SetCalls) -> None:
    await a_steady_set(cluster, sets)
    spec = a_set().template
    request = pb.PlanWorkloadsRequest(
        workloads=[
            pb.ApplyWorkloadRequest(workload_id="web-0", desired_state="Stopped"),
            pb.ApplyWorkloadRequest(workload_id="web", spec=spec),
        ]
    )

    response = await cluster.control.stub.PlanWorkloads(request, timeout=10)

    assert [(plan.action, plan.reason) for plan in response.plans] == [
        ("refused", MEMBER),
        ("refused", IS_SET),
    ]


async def test_of_a_set_and_a_workload_that_are_applied_together_the_set_never_hides_a_new_workload(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join()
    for number in range(20):
        name = f"web{number}"
        async with asyncio.TaskGroup() as group:
            applied = group.create_task(cluster.control.apply(name))
            created = group.create_task(sets.apply(a_set(name, replicas=1)))
        workload, found = applied.result(), created.result()
        # Either the workload was first, and the set replaces it, or it is refused.
        assert found.accepted
        if workload.success:
            assert cluster.app.cluster.sets[name].replaces == name
        else:
            assert "is a set" in workload.error_message


async def test_a_number_whose_id_is_taken_is_not_used(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join()
    await cluster.control.apply("web-1")

    await sets.applied(a_set(replicas=3))

    view = await sets.until_steady(members=3)
    assert sorted(ids(view)) == ["web-0", "web-2", "web-3"]
    assert sorted(member.index for member in view.members) == [0, 1, 2]
    assert not (await cluster.control.workload("web-1")).HasField("membership")


async def test_former_members_of_a_lost_set_are_changed_like_workloads_and_adopted_again(
    cluster: Cluster, sets: SetCalls
) -> None:
    await a_steady_set(cluster, sets, replicas=2)
    await cluster.stop()
    await _lose_sets(cluster)
    await cluster.start()

    assert (await cluster.control.want("web-1", "Stopped")).success
    await cluster.control.until("web-1", "Stopped")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await sets.get()
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == "set not found: web"

    view = await sets.applied(a_set(replicas=2, order="in-place"))
    assert view.target_revision == 2
    view = await sets.until_steady(members=2)
    assert ids(view) == ["web-0", "web-1"]


async def _lose_sets(cluster: Cluster) -> None:
    for prefix in (keys.SETS, keys.SET_REVISIONS):
        found = await cluster.store.store.read(prefix)
        units = [Unit(guards={one.key: one.version}, deletes=[one.key]) for one in found.records]
        await cluster.store.store.commit(units)


async def test_a_set_replaces_the_workload_with_its_id(cluster: Cluster, sets: SetCalls) -> None:
    node = await cluster.join()
    await cluster.control.apply("web", image="web:0")
    await cluster.control.until("web", "Running")

    await sets.applied(a_set(replicas=2))
    await sets.until_steady(members=2)
    await cluster.control.until_gone("web")

    async def is_replaced() -> bool:
        return node.agent.running() == {"web-0", "web-1"} and not (
            cluster.app.cluster.sets["web"].replaces
        )

    await eventually(is_replaced, lambda: f"running: {node.agent.running()}")


async def test_a_workload_with_data_is_not_replaced(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join()
    spec = a_set().template
    spec.container.volumes.add(host_path="/srv/web", container_path="/data")
    await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))

    answer = await sets.apply(a_set())

    assert not answer.accepted
    assert "has data" in answer.reason


def a_suggestion(name: str, **fields: object) -> pb.SubmitAutomationSuggestionRequest:
    suggestion = pb.AutomationSuggestion(
        suggestion_id=name,
        target_workload="web",
        action_type=pb.AUTOMATION_ACTION_SCALE_REPLICAS,
    )
    for field, value in fields.items():
        setattr(suggestion, field, value)
    return pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)


async def test_a_suggestion_scales_a_set_once(cluster: Cluster, sets: SetCalls) -> None:
    await a_steady_set(cluster, sets)
    submit = cluster.control.stub.SubmitAutomationSuggestion

    for _ in range(2):
        response = await submit(a_suggestion("s1", replica_delta=2), timeout=10)
        assert (response.accepted, response.applied_action) == (True, "scale_replicas=3")
    view = await sets.until_steady(members=3)
    assert view.spec.replicas == 3

    response = await submit(a_suggestion("s2", desired_replicas=3), timeout=10)
    assert (response.accepted, response.applied_action) == (True, "none")


async def test_a_suggestion_of_negative_replicas_is_rejected(
    cluster: Cluster, sets: SetCalls
) -> None:
    await a_steady_set(cluster, sets)
    submit = cluster.control.stub.SubmitAutomationSuggestion

    response = await submit(a_suggestion("s1", replica_delta=-2), timeout=10)

    assert not response.accepted
    assert response.reason.startswith("replicas: ")


async def test_a_suggestion_does_not_delete_a_member(cluster: Cluster, sets: SetCalls) -> None:
    await a_steady_set(cluster, sets)
    request = a_suggestion(
        "s1", target_workload="web-0", action_type=pb.AUTOMATION_ACTION_DELETE_WORKLOAD
    )

    response = await cluster.control.stub.SubmitAutomationSuggestion(request, timeout=10)

    assert (response.accepted, response.reason) == (False, MEMBER)


async def test_a_revision_has_the_identity_of_its_caller(secure: Cluster) -> None:
    sets = SetCalls(secure)
    await sets.applied(a_set(replicas=0))

    (revision,) = (await sets.get()).revisions

    assert revision.created_by == "admin/me"
    listed = await secure.control.stub.ListSets(pb.ListSetsRequest(), timeout=10)
    assert [one.spec.set_id for one in listed.sets] == ["web"]
