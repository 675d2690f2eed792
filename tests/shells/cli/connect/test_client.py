"""The SDK: names, errors and deadlines."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

import persys.client
from persys.client import AgentClient, RequestRefusedError, SchedulerClient
from persys.errors import InvalidError, NotFoundError, RefusedError, UnavailableError
from persys.wire.gen.control.v1 import control_pb2

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster


def test_a_name_that_is_not_exported_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="GatewayClient"):
        persys.client.GatewayClient  # noqa: B018


def test_both_clients_are_context_managers(cluster: Cluster) -> None:
    cluster.add_node("n1")

    with SchedulerClient(cluster.address) as scheduler, AgentClient(cluster.address) as agent:
        assert [node.node_id for node in scheduler.list_nodes()] == ["n1"]
        assert agent.check_health().healthy


def test_an_unknown_workload_is_not_found(cluster: Cluster) -> None:
    with SchedulerClient(cluster.address) as client, pytest.raises(NotFoundError, match="web"):
        client.get_workload("web")


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "node_id: is empty", InvalidError),
        (grpc.StatusCode.UNIMPLEMENTED, "no", RefusedError),
        (grpc.StatusCode.UNAVAILABLE, "no", UnavailableError),
        (grpc.StatusCode.INTERNAL, "no", UnavailableError),
    ],
)
def test_each_grpc_code_maps_to_one_error(
    code: grpc.StatusCode, text: str, error: type[Exception], cluster: Cluster
) -> None:
    cluster.abort = (code, text)

    with SchedulerClient(cluster.address) as client, pytest.raises(error):
        client.list_nodes()


def test_a_refusal_carries_the_reason_of_the_contract(cluster: Cluster) -> None:
    cluster.refusal = (control_pb2.INSUFFICIENT_RESOURCES, "no room")

    with (
        SchedulerClient(cluster.address) as client,
        pytest.raises(RequestRefusedError, match="no room") as error,
    ):
        client.set_desired_state("web", "Running")

    assert error.value.reason == "INSUFFICIENT_RESOURCES"


def test_a_peer_that_accepts_a_call_and_never_answers_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            SchedulerClient(target, timeout=timedelta(milliseconds=200)) as client,
            pytest.raises(UnavailableError),
        ):
            client.list_nodes()
