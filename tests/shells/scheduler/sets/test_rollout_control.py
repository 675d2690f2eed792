"""Users pause, resume, promote and undo rollouts, stop and start sets, and plan and explain them."""

from collections import Counter
from typing import Any

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set, ids, images


async def a_steady_set(cluster: Cluster, sets: SetCalls, **fields: object) -> None:
    await sets.applied(a_set(**fields))  # type: ignore[arg-type]
    await sets.until_steady(members=3)


async def test_a_canary_waits_for_its_promotion(cluster: Cluster, sets: SetCalls) -> None:
    node = await cluster.join()
    await a_steady_set(cluster, sets, order="in-place", canary=1)

    await sets.applied(a_set(image="web:2", order="in-place", canary=1))
    await sets.until(lambda view: view.phase == "Canary")

    assert Counter(images(node).values()) == {"web:1": 2, "web:2": 1}
    assert (await sets.order("PromoteRollout")).accepted
    await sets.until_steady(members=3, revision=2)
    assert set(images(node).values()) == {"web:2"}


async def test_a_canary_is_promoted_after_its_bake(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join()
    await a_steady_set(cluster, sets, order="in-place", canary=1, bake_seconds=600)

    await sets.applied(a_set(image="web:2", order="in-place", canary=1, bake_seconds=600))
    await sets.until(lambda view: view.phase == "Canary")
    sets.later(601)

    await sets.until_steady(members=3, revision=2)


async def test_a_member_that_is_being_deleted_is_not_counted_as_updated(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await a_steady_set(cluster, sets)
    node.agent.behaviour.keeps_copies = True

    assert (await sets.scale(2)).accepted
    view = await sets.until(lambda view: view.members[-1].health == "deleting")

    assert (view.updated_count, view.healthy_count, view.member_count_wanted) == (2, 2, 2)


async def test_a_paused_rollout_changes_no_member_until_it_is_resumed(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await a_steady_set(cluster, sets, order="in-place")
    slow: dict[str, Any] = {"min_healthy": 60, "healthy_deadline_seconds": 86_400}
    await sets.applied(a_set(image="web:2", order="in-place", **slow))
    await sets.until(lambda view: view.updated_count == 1 and view.healthy_count == 3)

    answer = await sets.order("PauseRollout")
    assert (answer.accepted, answer.set.phase) == (True, "Paused")
    passes = cluster.app.set_controller.passes
    sets.later(61)

    async def has_passed() -> bool:
        return cluster.app.set_controller.passes > passes

    await eventually(has_passed, lambda: "a pass of the paused set")
    assert Counter(images(node).values()) == {"web:1": 2, "web:2": 1}

    assert (await sets.order("ResumeRollout")).accepted

    async def is_steady() -> bool:
        sets.later(61)
        return (await sets.get()).phase == "Steady"

    await eventually(is_steady, lambda: "the rollout to end", every=0.1)
    assert Counter(images(node).values()) == {"web:2": 3}


async def test_an_undo_returns_to_the_last_stable_revision(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await a_steady_set(cluster, sets, order="in-place")
    await sets.applied(a_set(image="web:2", order="in-place"))
    await sets.until_steady(members=3, revision=2)

    answer = await sets.undo()

    assert (answer.accepted, answer.set.target_revision) == (True, 1)
    view = await sets.until_steady(members=3, revision=1)
    assert set(images(node).values()) == {"web:1"}
    assert [one.number for one in view.revisions] == [2, 1]


async def test_a_stopped_set_stops_its_members_and_starts_them_again(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await a_steady_set(cluster, sets)

    answer = await sets.apply(pb.SetSpec(set_id="web"), "Stopped")
    assert (answer.accepted, answer.outcome) == (True, "updated")

    def is_stopped(view: pb.SetView) -> bool:
        return {member.health for member in view.members} == {"stopped"}

    view = await sets.until(is_stopped)
    assert (view.desired_state, node.agent.running()) == ("Stopped", set())
    await sets.applied(pb.SetSpec(set_id="web"), "Running")
    view = await sets.until_steady(members=3)
    assert ids(view) == ["web-0", "web-1", "web-2"]


async def test_an_apply_without_a_template_changes_only_what_it_names(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join()
    await a_steady_set(cluster, sets, max_parallel=2)

    view = await sets.applied(pb.SetSpec(set_id="web", replicas=4))

    assert (view.spec.replicas, view.target_revision) == (4, 1)
    assert view.spec.update.max_parallel == 2
    await sets.until_steady(members=4)


async def test_an_apply_without_a_template_needs_an_existing_set(sets: SetCalls) -> None:
    answer = await sets.apply(pb.SetSpec(set_id="api"), "Stopped")

    assert (answer.accepted, answer.reason) == (False, "set not found: api")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (pb.SetSpec(set_id="web", template=pb.WorkloadSpec(type="x")), "set.template.type: "),
        (a_set(order="sideways"), "set.update.order: "),
        (a_set(replicas=-1), "set.replicas: "),
        (a_set(on_failure="panic"), "set.update.on_failure: "),
        (pb.SetSpec(set_id="web", every="rack", template=a_set().template), "set.every: "),
        (a_set("x" * 58), "set.set_id: "),
    ],
)
async def test_an_invalid_set_is_refused_with_its_field(
    sets: SetCalls, spec: pb.SetSpec, field: str
) -> None:
    answer = await sets.apply(spec)

    assert not answer.accepted
    assert answer.reason.startswith(field), answer.reason


async def test_a_plan_shows_the_set_and_each_member(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join()
    await a_steady_set(cluster, sets)
    request = pb.PlanWorkloadsRequest(
        sets=[a_set(image="web:2", replicas=2), a_set("api", replicas=2, cpu=3000)]
    )

    response = await cluster.control.stub.PlanWorkloads(request, timeout=10)

    plans = {plan.workload_id: plan for plan in response.plans}
    assert (plans["web"].action, plans["api"].action) == ("update", "create")
    assert {change.field for change in plans["web"].changes} == {
        "replicas",
        "template.container.image",
    }
    actions = Counter(plan.action for name, plan in plans.items() if name.startswith("web-"))
    assert actions == {"create": 2, "delete": 3}
    assert [plans[name].would_wait for name in ("api-0", "api-1")] == [False, True]
    assert "1 would be pending" in plans["api"].reason
    assert (await sets.get()).target_revision == 1


async def test_a_plan_of_an_invalid_set_is_refused(cluster: Cluster) -> None:
    request = pb.PlanWorkloadsRequest(sets=[a_set(order="sideways")])

    response = await cluster.control.stub.PlanWorkloads(request, timeout=10)

    (plan,) = response.plans
    assert (plan.workload_id, plan.action) == ("web", "refused")
    assert plan.reason.startswith("set.update.order: ")


async def test_a_set_is_explained_by_its_rollout_and_its_first_pending_member(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join(cpu=2500)
    await sets.applied(a_set(replicas=3, cpu=1000))
    await sets.until(lambda view: view.healthy_count == 2)
    request = pb.ExplainWorkloadRequest(workload_id="web")

    response = await cluster.control.stub.ExplainWorkload(request, timeout=10)

    assert response.workload_id == "web"
    assert response.summary.startswith("is Rolling: 2 of 3 members are healthy")
    assert "web-2 waits: 1 node short of cpu" in response.summary
    assert response.rule == "gate"
    assert [node.fits for node in response.nodes] == [False]
