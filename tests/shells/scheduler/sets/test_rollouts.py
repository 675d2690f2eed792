"""Sets from apply to steady, and their rollouts, with agents that report over the contract only."""

from collections.abc import Sequence
from typing import Any

from persys.store.port import Outcome, Unit
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set, ids, images


async def test_a_new_set_creates_all_members_and_becomes_steady(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()

    answer = await sets.apply(a_set())

    assert (answer.accepted, answer.outcome, answer.set.target_revision) == (True, "created", 1)
    view = await sets.until_steady(members=3)
    assert ids(view) == ["web-0", "web-1", "web-2"]
    assert [member.index for member in view.members] == [0, 1, 2]
    assert {member.health for member in view.members} == {"healthy"}
    assert node.agent.running() == {"web-0", "web-1", "web-2"}
    env = {request.id: request.spec.container.env["PERSYS_INDEX"] for request in node.agent.applies}
    assert env == {"web-0": "0", "web-1": "1", "web-2": "2"}


async def test_an_equal_set_is_unchanged(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join()
    await sets.applied(a_set())
    await sets.until_steady()

    answer = await sets.apply(a_set())

    assert (answer.accepted, answer.outcome, answer.set.target_revision) == (True, "unchanged", 1)


async def test_a_start_first_rollout_replaces_members_and_always_has_enough_healthy_ones(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await sets.applied(a_set(order="start-first"))
    await sets.until_steady(members=3)
    fewest = 3

    view = await sets.applied(a_set(image="web:2", order="start-first"))
    assert (view.phase, view.target_revision, view.stable_revision) == ("Rolling", 2, 1)

    async def is_done() -> bool:
        nonlocal fewest
        now = await sets.get()
        fewest = min(fewest, now.healthy_count)
        return now.phase == "Steady"

    await eventually(is_done, lambda: "the rollout to end")
    view = await sets.until_steady(members=3, revision=2)
    assert fewest >= 3
    assert sorted(member.index for member in view.members) == [0, 1, 2]

    async def is_removed() -> bool:
        return set(images(node).values()) == {"web:2"} and len(images(node)) == 3

    await eventually(is_removed, lambda: f"old members to be removed: {images(node)}")


async def test_an_in_place_rollout_keeps_the_ids(cluster: Cluster, sets: SetCalls) -> None:
    node = await cluster.join()
    await sets.applied(a_set(order="in-place"))
    await sets.until_steady(members=3)

    await sets.applied(a_set(image="web:2", order="in-place"))

    view = await sets.until_steady(members=3, revision=2)
    assert ids(view) == ["web-0", "web-1", "web-2"]
    assert images(node) == {"web-0": "web:2", "web-1": "web:2", "web-2": "web:2"}


async def test_a_member_that_fails_rolls_the_set_back(cluster: Cluster, sets: SetCalls) -> None:
    node = await cluster.join()
    await sets.applied(a_set(order="in-place"))
    await sets.until_steady(members=3)
    node.agent.behaviour.failures["web-0"] = ("IMAGE_NOT_FOUND", "no such image: web:2")

    await sets.applied(a_set(image="web:2", order="in-place"))

    await sets.until(lambda view: view.phase == "RollingBack")
    node.agent.behaviour.failures.clear()
    view = await sets.until_steady(members=3, revision=1)
    assert "no such image" in view.reason
    assert images(node) == {"web-0": "web:1", "web-1": "web:1", "web-2": "web:1"}


async def test_scaling_adds_members_and_removes_the_highest_index_first(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join()
    await sets.applied(a_set(replicas=2))
    await sets.until_steady(members=2)

    assert (await sets.scale(5)).accepted
    await sets.until_steady(members=5)
    assert (await sets.scale(1)).accepted
    view = await sets.until_steady(members=1)

    assert ids(view) == ["web-0"]


async def test_a_deleted_set_deletes_its_members_and_its_records(
    cluster: Cluster, sets: SetCalls
) -> None:
    node = await cluster.join()
    await sets.applied(a_set())
    await sets.until_steady()

    assert (await sets.order("DeleteSet")).accepted
    await sets.until_gone()

    assert cluster.app.cluster.set_revisions == {}
    assert cluster.app.cluster.workloads == {}
    assert node.agent.running() == set()


async def test_a_rollout_stores_at_most_four_transactions_per_batch_beside_its_members(
    cluster: Cluster, sets: SetCalls
) -> None:
    batches = 10
    await cluster.join(cpu=64_000, memory=256_000)
    await sets.applied(a_set(replicas=1_000, cpu=10, order="in-place", max_parallel=100))
    await sets.until_steady(members=1_000, within=240)
    stored: list[Unit] = []
    commit = cluster.store.commit

    async def counted(units: Sequence[Unit], **fence: Any) -> list[Outcome]:
        stored.extend(units)
        return await commit(units, **fence)

    cluster.store.commit = counted  # type: ignore[method-assign]
    update = a_set(replicas=1_000, image="web:2", cpu=10, order="in-place", max_parallel=100)
    await sets.applied(update)
    await sets.until_steady(members=1_000, revision=2, within=240)

    own = [unit for unit in stored if not any("/web-" in key for key in unit.puts)]
    assert 0 < len(own) <= 4 * batches
