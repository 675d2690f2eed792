"""Suggestions of automation policies through the API: applied once, in spite of failures."""

import asyncio

import grpc
import pytest

from persys.scheduler.reconcile.suggestions import KEPT_MAX
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

SET = pb.AUTOMATION_ACTION_SET_DESIRED_STATE
RETRY = pb.AUTOMATION_ACTION_RETRY_WORKLOAD
DELETE = pb.AUTOMATION_ACTION_DELETE_WORKLOAD
SCALE = pb.AUTOMATION_ACTION_SCALE_REPLICAS


async def suggest(
    cluster: Cluster,
    suggestion_id: str,
    action: pb.AutomationActionType = DELETE,
    *,
    target: str = "web",
    desired: str = "",
) -> pb.SubmitAutomationSuggestionResponse:
    suggestion = pb.AutomationSuggestion(
        suggestion_id=suggestion_id,
        policy_name="night",
        target_workload=target,
        action_type=action,
        desired_state=desired,
        reason="it is late",
    )
    response: pb.SubmitAutomationSuggestionResponse = (
        await cluster.control.stub.SubmitAutomationSuggestion(
            pb.SubmitAutomationSuggestionRequest(suggestion=suggestion), timeout=10
        )
    )
    return response


async def events(cluster: Cluster, kind: str) -> list[str]:
    request = pb.ListEventsRequest(kinds=[kind])
    response = await cluster.control.stub.ListEvents(request, timeout=10)
    return [event.message for event in response.events]


async def a_running_workload(cluster: Cluster, name: str = "web") -> None:
    await cluster.control.apply(name)
    await cluster.control.until(name, "Running")


@pytest.mark.parametrize(
    ("word", "status"), [("STOP", "Stopped"), ("stopped", "Stopped"), ("Start", "Running")]
)
async def test_a_desired_state_is_set_in_any_spelling(
    cluster: Cluster, word: str, status: str
) -> None:
    await cluster.join()
    await a_running_workload(cluster)

    response = await suggest(cluster, "s1", SET, desired=word)

    assert (response.accepted, response.decision) == (True, "accepted")
    assert response.decided_at.seconds > 0
    await cluster.control.until("web", status)


async def test_deleting_is_a_desired_state_too(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)

    response = await suggest(cluster, "s1", SET, desired="delete")

    assert response.applied_action == "set_desired_state=deleted"
    await cluster.control.until_gone("web")


async def test_a_failed_workload_is_tried_again(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("INVALID_IMAGE", "no such image")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")
    node.agent.behaviour.failures.clear()

    response = await suggest(cluster, "s1", RETRY)

    assert (response.accepted, response.applied_action) == (True, "retry_workload")
    await cluster.control.until("web", "Running")


@pytest.mark.parametrize(
    ("action", "target", "desired", "says"),
    [
        (SCALE, "web", "", "one instance"),
        (DELETE, "nobody", "", "target_workload"),
        (DELETE, "", "", "target_workload"),
        (SET, "web", "", "desired_state"),
        (SET, "web", "sideways", "desired_state"),
        (pb.AUTOMATION_ACTION_TYPE_UNSPECIFIED, "web", "", "action_type"),
    ],
)
async def test_an_impossible_suggestion_is_rejected_with_the_reason(
    cluster: Cluster, action: pb.AutomationActionType, target: str, desired: str, says: str
) -> None:
    await cluster.join()
    await a_running_workload(cluster)

    response = await suggest(cluster, "s1", action, target=target, desired=desired)

    assert (response.accepted, response.decision, response.applied_action) == (
        False,
        "rejected",
        "",
    )
    assert says in response.reason
    assert says in (await events(cluster, "SuggestionRejected"))[0]


async def test_an_empty_id_is_an_invalid_argument(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await suggest(cluster, "")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_repeated_suggestion_gets_the_same_reply_and_is_applied_once(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await a_running_workload(cluster)

    responses = await asyncio.gather(
        *(suggest(cluster, "s1", SET, desired="stopped") for _ in range(8))
    )

    assert all(response == responses[0] for response in responses)
    assert len(await events(cluster, "SuggestionAccepted")) == 1
    assert (
        "s1 of policy night because it is late" in (await events(cluster, "SuggestionAccepted"))[0]
    )


async def test_an_id_with_other_content_is_rejected(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    first = await suggest(cluster, "s1", SET, desired="stopped")

    other = await suggest(cluster, "s1", DELETE)

    assert not other.accepted
    assert "already used" in other.reason
    assert await suggest(cluster, "s1", SET, desired="stopped") == first
    await cluster.control.until("web", "Stopped")


async def test_a_replay_after_a_restart_spares_a_workload_that_was_created_since(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    first = await suggest(cluster, "s1", DELETE)
    await cluster.control.until_gone("web")
    await a_running_workload(cluster)

    await cluster.stop()
    await cluster.start()
    again = await suggest(cluster, "s1", DELETE)

    assert again == first
    assert (await cluster.control.workload("web")).desired_state == "Running"


async def test_a_suggestion_that_changed_nothing_is_not_applied_when_it_is_sent_again(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    first = await suggest(cluster, "s1", SET, desired="running")
    await suggest(cluster, "s2", SET, desired="stopped")
    await cluster.control.until("web", "Stopped")

    await cluster.stop()
    await cluster.start()
    again = await suggest(cluster, "s1", SET, desired="running")

    assert again == first
    assert (await cluster.control.workload("web")).desired_state == "Stopped"


async def test_a_suggestion_with_a_lost_response_is_returned_again(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    cluster.store.loses_answers = True

    with pytest.raises(grpc.aio.AioRpcError) as lost:
        await suggest(cluster, "s1", DELETE)
    cluster.store.loses_answers = False

    assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    await cluster.control.until_gone("web")
    await a_running_workload(cluster)
    again = await suggest(cluster, "s1", DELETE)
    assert (again.accepted, again.applied_action) == (True, "delete_workload")
    assert (await cluster.control.workload("web")).desired_state == "Running"


async def test_nothing_is_decided_while_the_store_is_unavailable(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    cluster.store.down = True

    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await suggest(cluster, "s1", DELETE)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    frozen = await suggest(cluster, "s1", DELETE)
    assert not frozen.accepted
    assert not frozen.HasField("decided_at")  # unavailable, not rejected
    cluster.store.down = False

    async def decided() -> bool:
        try:
            return (await suggest(cluster, "s1", DELETE)).accepted
        except grpc.aio.AioRpcError:
            return False

    await eventually(decided, lambda: "the store to take writes again")
    await cluster.control.until_gone("web")


async def test_only_the_newest_rulings_are_stored(cluster: Cluster) -> None:
    for hundred in range(10):
        await asyncio.gather(
            *(suggest(cluster, f"old-{hundred}{n:02d}", SCALE) for n in range(100))
        )

    for number in range(20):
        await suggest(cluster, f"new-{number}", SCALE)

    stored = {record.key for record in (await cluster.store.read("/suggestions/")).records}
    assert len(stored) == KEPT_MAX
    assert {f"/suggestions/new-{number}" for number in range(20)} <= stored
