"""A suggestion is applied only with the permission of its action; otherwise it waits for approval."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.event import EventKind
from persys.model.identity import Role
from persys.scheduler.reconcile.suggestions import PENDING_FOR, PENDING_MAX
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, fast_settings
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set
from shells.scheduler.stores import FaultyStore

DELETE = pb.AUTOMATION_ACTION_DELETE_WORKLOAD
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture
async def cluster(root: Root) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls = root.tls(Role.SCHEDULER, "s1")
    user = Tls(root.write(Role.ADMIN, "me", lifetime=timedelta(days=60)), SystemClock())
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as running:
        await running.control.apply("web")
        yield running
    await store.store.close()


@pytest.fixture
async def bot(cluster: Cluster) -> Metadata:
    """A token that may only suggest."""
    created = await cluster.control.stub.CreateToken(
        pb.CreateTokenRequest(name="bot", role="operator", deeds=["suggest"]), timeout=10
    )
    return (("authorization", f"Bearer {created.secret}"),)


async def suggest(
    cluster: Cluster, suggestion_id: str, metadata: Metadata = (), target: str = "web"
) -> pb.SubmitAutomationSuggestionResponse:
    suggestion = pb.AutomationSuggestion(
        suggestion_id=suggestion_id, target_workload=target, action_type=DELETE
    )
    request = pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)
    stub = cluster.control.stub
    response: pb.SubmitAutomationSuggestionResponse = await stub.SubmitAutomationSuggestion(
        request, timeout=10, metadata=metadata
    )
    return response


async def decide(cluster: Cluster, verb: str, suggestion_id: str) -> pb.SuggestionAnswer:
    request = pb.SuggestionRequest(suggestion_id=suggestion_id)
    response: pb.SuggestionAnswer = await getattr(cluster.control.stub, verb)(request, timeout=10)
    return response


async def listed(cluster: Cluster, decision: str = "") -> list[pb.SuggestionView]:
    request = pb.ListSuggestionsRequest(decision=decision)
    return list((await cluster.control.stub.ListSuggestions(request, timeout=10)).suggestions)


async def test_a_token_that_may_only_suggest_deletes_nothing(
    cluster: Cluster, bot: Metadata
) -> None:
    response = await suggest(cluster, "s1", bot)

    assert (response.accepted, response.decision) == (False, "rejected")
    assert "persysctl suggestion approve s1" in response.reason
    assert (await cluster.control.workload("web")).desired_state == "Running"
    (pending,) = await listed(cluster, "pending")
    assert pending.suggestion.suggestion_id == "s1"
    assert pending.submitted_by.startswith("operator/bot by token ")


async def test_a_set_is_scaled_by_a_token_that_may_only_suggest_when_it_is_approved(
    cluster: Cluster, bot: Metadata
) -> None:
    sets = SetCalls(cluster)
    await sets.applied(a_set("front", replicas=1))
    suggestion = pb.AutomationSuggestion(
        suggestion_id="s1",
        target_workload="front",
        action_type=pb.AUTOMATION_ACTION_SCALE_REPLICAS,
        desired_replicas=3,
    )
    request = pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)
    stub = cluster.control.stub

    response = await stub.SubmitAutomationSuggestion(request, timeout=10, metadata=bot)
    before = (await sets.get("front")).spec.replicas
    approved = await decide(cluster, "ApproveSuggestion", "s1")

    assert (response.accepted, before) == (False, 1)
    assert "persysctl suggestion approve s1" in response.reason
    assert approved.accepted
    assert (await sets.get("front")).spec.replicas == 3


async def test_a_suggestion_of_an_authorized_sender_is_applied_immediately(
    cluster: Cluster,
) -> None:
    response = await suggest(cluster, "s1")

    assert (response.accepted, response.applied_action) == (True, "delete_workload")
    await cluster.control.until_gone("web")


async def test_an_approved_suggestion_is_applied_and_answered_as_accepted(
    cluster: Cluster, bot: Metadata
) -> None:
    await suggest(cluster, "s1", bot)

    response = await decide(cluster, "ApproveSuggestion", "s1")

    assert response.accepted, response.reason
    assert (response.suggestion.decision, response.suggestion.decided_by) == (
        "accepted",
        "admin/me",
    )
    await cluster.control.until_gone("web")
    assert (await suggest(cluster, "s1", bot)).accepted
    again = await decide(cluster, "ApproveSuggestion", "s1")
    assert "already accepted" in again.reason


async def test_a_rejected_suggestion_cannot_be_approved(cluster: Cluster, bot: Metadata) -> None:
    await suggest(cluster, "s1", bot)

    assert (await decide(cluster, "RejectSuggestion", "s1")).accepted

    refused = await decide(cluster, "ApproveSuggestion", "s1")
    assert not refused.accepted
    assert "already rejected" in refused.reason
    assert (await cluster.control.workload("web")).desired_state == "Running"


@pytest.mark.parametrize(
    "verbs",
    [
        ("ApproveSuggestion", "ApproveSuggestion"),
        ("ApproveSuggestion", "RejectSuggestion"),
        ("RejectSuggestion", "RejectSuggestion"),
    ],
)
async def test_of_two_concurrent_decisions_only_one_is_applied(
    cluster: Cluster, bot: Metadata, verbs: tuple[str, str]
) -> None:
    await suggest(cluster, "s1", bot)
    cluster.store.commit_seconds = 0.1

    responses = await asyncio.gather(*(decide(cluster, verb, "s1") for verb in verbs))

    assert sorted(response.accepted for response in responses) == [False, True]
    (refused,) = (response for response in responses if not response.accepted)
    assert "was already" in refused.reason


async def test_a_suggestion_that_is_submitted_twice_at_once_is_decided_once(
    cluster: Cluster,
) -> None:
    cluster.store.commit_seconds = 0.1

    responses = await asyncio.gather(*(suggest(cluster, "s1") for _ in range(2)))

    assert [response.applied_action for response in responses] == ["delete_workload"] * 2
    events = await cluster.control.stub.ListEvents(pb.ListEventsRequest(), timeout=10)
    decided = [event for event in events.events if event.kind == EventKind.SUGGESTION_ACCEPTED]
    assert len(decided) == 1


@pytest.mark.parametrize("verb", ["ApproveSuggestion", "RejectSuggestion"])
async def test_only_an_authorized_user_decides_on_a_suggestion(
    cluster: Cluster, root: Root, bot: Metadata, verb: str
) -> None:
    await suggest(cluster, "s1", bot)
    viewer = Control(cluster.settings.grpc_port, root.tls(Role.VIEWER, "eve"))
    request = pb.SuggestionRequest(suggestion_id="s1")

    for stub, metadata in ((viewer.stub, ()), (cluster.control.stub, bot)):
        response = await getattr(stub, verb)(request, timeout=10, metadata=metadata)
        assert not response.accepted
        assert "needs the permission workloads" in response.reason
    await viewer.channel.close()
    assert len(await listed(cluster, "pending")) == 1


async def test_a_pending_suggestion_expires(cluster: Cluster, bot: Metadata) -> None:
    await suggest(cluster, "s1", bot)
    cluster.clock.ahead = PENDING_FOR + timedelta(minutes=1)

    refused = await decide(cluster, "ApproveSuggestion", "s1")

    assert not refused.accepted
    assert "expired" in refused.reason
    assert [view.decision for view in await listed(cluster)] == ["rejected"]


async def test_a_suggestion_that_cannot_be_applied_is_not_stored_for_approval(
    cluster: Cluster, bot: Metadata
) -> None:
    response = await suggest(cluster, "s1", bot, target="none")

    assert "workload not found: none" in response.reason
    assert await listed(cluster, "pending") == []


async def test_the_number_of_pending_suggestions_is_bounded(
    cluster: Cluster, bot: Metadata
) -> None:
    for number in range(PENDING_MAX):
        await suggest(cluster, f"s{number}", bot)

    response = await suggest(cluster, "one-more", bot)

    assert "wait for approval, expected at most" in response.reason
    assert len(await listed(cluster, "pending")) == PENDING_MAX
