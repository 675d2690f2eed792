"""Limits of calls with a prefix token: what is checked in requests and removed from responses."""

from typing import Any

import pytest

from builders import NOON
from persys.errors import DeniedError
from persys.model.identity import Caller, Identity, Permission, Role
from persys.scheduler.auth.prefix_scope import check_request, limit_response, limited_context
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Method

PREFIX = "home--"


def a_caller(prefix: str = PREFIX) -> Caller:
    return Caller(Identity(Role.ADMIN, "me"), frozenset(Permission), NOON, "1", prefix=prefix)


class Written:
    """The context of a stream."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def write(self, message: Any) -> None:
        self.messages.append(message)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


def test_a_caller_without_a_prefix_is_not_limited() -> None:
    request = pb.NodeRequest(node_id="n1")
    assert check_request(a_caller(""), "CordonNode", request) is request
    response = pb.ListWorkloadsResponse(workloads=[pb.WorkloadView(workload_id="web")])
    assert len(limit_response(METHODS["ListWorkloads"], response, "").workloads) == 1
    written = Written()
    assert limited_context(METHODS["WatchEvents"], written, "") is written


@pytest.mark.parametrize("name", ["CordonNode", "NotAnRpc"])
def test_an_rpc_without_a_scope_is_refused(name: str) -> None:
    with pytest.raises(DeniedError, match=f"may not call {name}"):
        check_request(a_caller(), name, pb.NodeRequest())


def test_a_response_of_an_rpc_without_a_scope_is_not_returned() -> None:
    unknown = Method("New", Permission.READ)

    with pytest.raises(DeniedError, match="New is refused"):
        limit_response(unknown, pb.NodeAnswer(), PREFIX)


def test_every_name_of_a_request_is_checked() -> None:
    own = pb.ApplyWorkloadRequest(workload_id="home--a")
    check_request(a_caller(), "PlanWorkloads", pb.PlanWorkloadsRequest(workloads=[own, own]))

    other = pb.ApplyWorkloadRequest(workload_id="a")
    mixed = pb.PlanWorkloadsRequest(workloads=[own, other])
    with pytest.raises(DeniedError, match=r"workloads\.workload_id 'a'"):
        check_request(a_caller(), "PlanWorkloads", mixed)


def test_items_of_inner_lists_are_removed_and_the_order_is_kept() -> None:
    blocks = [pb.DrainBlock(workload_id=name) for name in ("home--b", "x", "home--a")]
    nodes = [
        pb.NodeView(node_id="n1", grpc_endpoint="a:1", drain=pb.DrainView(blocked=blocks)),
        pb.NodeView(node_id="n2", grpc_endpoint="b:1"),
    ]

    limited = limit_response(METHODS["ListNodes"], pb.ListNodesResponse(nodes=nodes), PREFIX)

    assert [node.node_id for node in limited.nodes] == ["n1", "n2"]
    assert [one.workload_id for one in limited.nodes[0].drain.blocked] == ["home--b", "home--a"]
    assert not any(node.grpc_endpoint for node in limited.nodes)
    assert not limited.nodes[1].HasField("drain")


def test_names_in_lists_of_texts_are_removed() -> None:
    loss = pb.LossView(node_id="n1", stranded=["a", "home--a"], bound=["b"])

    limited = limit_response(METHODS["GetCapacity"], pb.GetCapacityResponse(losses=[loss]), PREFIX)

    assert list(limited.losses[0].stranded) == ["home--a"]
    assert list(limited.losses[0].bound) == []


async def test_a_stream_writes_only_its_own_messages_and_bookmarks() -> None:
    written = Written()
    context = limited_context(METHODS["WatchEvents"], written, PREFIX)

    await context.write(pb.EventView(sequence=1, kind="NodeReady", node_id="n1"))
    await context.write(pb.EventView(sequence=2, kind="WorkloadRunning", workload_id="web"))
    await context.write(pb.EventView(sequence=3, kind="WorkloadRunning", workload_id="home--web"))
    await context.write(pb.EventView(sequence=4))

    assert [message.sequence for message in written.messages] == [3, 4]
    assert context.peer() == "ipv4:127.0.0.1:1"
