"""The agent API: invalid requests, queries, and random bytes on the port."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED


def test_an_invalid_spec_is_refused_by_the_name_of_its_field(
    agent: "Agent", unique_id: str
) -> None:
    response = agent.apply(unique_id, agent_pb2.ContainerSpec(image=""))

    assert not response.applied
    assert "spec.container.image" in response.message
    assert response.status.actual_state == FAILED
    assert response.status.metadata["failure_reason"] == "INVALID_SPEC"
    assert response.status.metadata["retry_terminal"] == "true"
    assert not agent.knows(unique_id)


@pytest.mark.parametrize("workload_id", ["", "Not_A_Label", "a" * 64])
def test_an_invalid_id_is_an_invalid_argument(
    agent: "Agent", workload_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    for call in (
        lambda: agent.apply(workload_id, sleeper),
        lambda: agent.delete(workload_id),
        lambda: agent.status(workload_id),
    ):
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_over_a_limit_is_refused_by_the_path_of_its_field(
    agent: "Agent", unique_id: str
) -> None:
    env = {f"V{number}": "" for number in range(1_500)}
    response = agent.apply(unique_id, agent_pb2.ContainerSpec(image="nginx", env=env))

    assert response.message == "spec.container.env: has 1500 entries; expected at most 1000"
    with pytest.raises(grpc.RpcError) as error:
        agent.stub.DeleteWorkload(
            agent_pb2.DeleteWorkloadRequest(id=unique_id, epoch=2**63 - 1), timeout=10
        )
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "epoch" in (error.value.details() or "")


def test_a_spec_that_violates_the_node_policy_is_refused_by_field(
    agent: "Agent", unique_id: str, demo_image: str
) -> None:
    requested = {
        "spec.container.privileged": agent_pb2.ContainerSpec(image=demo_image, privileged=True),
        "persys.node_id": agent_pb2.ContainerSpec(
            image=demo_image, labels={"persys.node_id": "mine"}
        ),
        "managed_volumes[0].driver": agent_pb2.ContainerSpec(
            image=demo_image,
            managed_volumes=[
                agent_pb2.ManagedVolumeSpec(name="v", mount_path="/v", driver="ceph-rbd")
            ],
        ),
    }
    for field, spec in requested.items():
        response = agent.apply(unique_id, spec)

        assert not response.applied
        assert field in response.message
        assert response.status.metadata["failure_reason"] == "INVALID_SPEC"


def test_a_type_without_a_runtime_is_not_available(agent: "Agent", unique_id: str) -> None:
    request = agent_pb2.ApplyWorkloadRequest(
        id=unique_id,
        type=agent_pb2.WORKLOAD_TYPE_COMPOSE,
        revision_id="r1",
        spec=agent_pb2.WorkloadSpec(
            compose=agent_pb2.ComposeSpec(compose_yaml="c2VydmljZXM6IHt3ZWI6IHtpbWFnZTogeH19Cg==")
        ),
    )

    response = agent.stub.ApplyWorkload(request, timeout=10)

    assert not response.applied
    assert "runtime not available" in response.message
    assert response.status.metadata["retry_terminal"] == "false"


def test_an_older_epoch_is_refused(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper, epoch=5)
    agent.wait_for(unique_id, RUNNING)

    refused = agent.apply(unique_id, sleeper, revision="r0", epoch=4)
    assert (refused.applied, refused.known_epoch) == (False, 5)
    assert "stale epoch 4: this node has epoch 5" in refused.message
    with pytest.raises(grpc.RpcError, match="FAILED_PRECONDITION"):
        agent.delete(unique_id, epoch=4)
    assert agent.apply(unique_id, sleeper, epoch=6).skipped
    assert agent.status(unique_id).epoch == 6
    agent.delete(unique_id, epoch=6)
    agent.wait_until_gone(unique_id)
    assert not agent.apply(unique_id, sleeper, epoch=5).applied
    assert not agent.knows(unique_id)


def test_an_order_without_a_revision_gets_one_from_its_content(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    first = agent.apply(unique_id, sleeper, revision="")
    agent.wait_for(unique_id, RUNNING)

    assert first.status.revision_id
    assert agent.apply(unique_id, sleeper, revision="").skipped


def test_actions_are_filtered_and_ordered(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    agent.apply(unique_id, shell("exit 1"))
    agent.wait_for(unique_id, FAILED)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)

    def listed(**filters: object) -> list[agent_pb2.AgentAction]:
        request = agent_pb2.ListActionsRequest(workload_id=unique_id, **filters)  # type: ignore[arg-type]  # as protobuf takes them
        return list(agent.stub.ListActions(request, timeout=10).actions)

    apply, delete = listed()
    assert (apply.action_type, delete.action_type) == ("apply_workload", "delete_workload")
    assert apply.created_at <= apply.started_at <= apply.ended_at
    assert listed(action_type="delete_workload") == [delete]
    assert listed(newest_first=True) == [delete, apply]
    assert listed(limit=1) == [delete]
    assert listed(status="pending") == []


def test_workloads_are_listed_by_type(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)

    def ids(type_: agent_pb2.WorkloadType) -> set[str]:
        request = agent_pb2.ListWorkloadsRequest(type=type_)
        return {status.id for status in agent.stub.ListWorkloads(request, timeout=10).workloads}

    assert unique_id in ids(agent_pb2.WORKLOAD_TYPE_UNSPECIFIED)
    assert unique_id in ids(agent_pb2.WORKLOAD_TYPE_CONTAINER)
    assert ids(agent_pb2.WORKLOAD_TYPE_VM) == set()


def test_the_health_check_reports_runtimes_and_utilization(agent: "Agent") -> None:
    health = agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)

    assert health.healthy
    assert health.version
    assert health.runtime_status["container"] == "healthy"
    assert health.runtime_status["vm"] == "runtime not available"
    assert 0 < health.memory_utilization < 100
    assert 0 <= health.cpu_utilization <= 100
    assert 0 < health.disk_utilization < 100


def test_the_service_is_found_by_reflection(agent: "Agent") -> None:
    with grpc.insecure_channel(f"127.0.0.1:{agent.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (response,) = stub.ServerReflectionInfo(iter([request]), timeout=10)

    names = {service.name for service in response.list_services_response.service}
    assert "persys.agent.v1.AgentService" in names


def test_variables_turn_tls_off_and_set_the_version(new_agent: "Callable[..., Agent]") -> None:
    agent = new_agent("-standalone", PERSYS_TLS_ENABLED="false", PERSYS_VERSION="dev")
    agent.start()

    health = agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)

    assert health.version == "dev"


def test_random_bytes_on_the_port_do_no_harm(agent: "Agent") -> None:
    for noise in (
        os.urandom(4096),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0",
    ):
        with socket.create_connection(("127.0.0.1", agent.port), timeout=5) as connection:
            connection.sendall(noise)

    assert agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10).healthy


def test_health_and_metrics_are_served_over_http(
    new_agent: "Callable[..., Agent]", free_port: int, unique_id: str, demo_image: str
) -> None:
    agent = new_agent(PERSYS_METRICS_PORT=str(free_port))
    agent.start()
    stopped = agent_pb2.DESIRED_STATE_STOPPED
    agent.apply(unique_id, agent_pb2.ContainerSpec(image=demo_image), desired=stopped)
    agent.wait_for(unique_id, STOPPED)

    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/health", timeout=5) as response:
        health = json.load(response)
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=5) as response:
        metrics = response.read().decode()

    assert health["status"] == "ok"
    assert health["node_id"] == agent.node_id
    assert health["runtimes"] == {"container": "ok"}
    assert health["scheduler"] == "standalone"
    assert (health["workloads"], health["leader_contact_seconds"]) == (1, None)
    assert 'persys_agent_workloads{actual="stopped"} 1.0' in metrics
    assert 'persys_agent_actions_total{kind="apply_workload",outcome="completed"} 1.0' in metrics


def test_each_action_logs_one_line_at_its_end(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper, epoch=3)
    agent.wait_for(unique_id, RUNNING)

    (line,) = [line for line in agent.logged("action.ended") if line["workload_id"] == unique_id]
    assert (line["revision"], line["epoch"], line["outcome"]) == ("r1", 3, "completed")
    assert line["duration_seconds"] > 0


def test_binds_stay_below_the_allowed_roots(
    new_agent: "Callable[..., Agent]",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    tmp_path: Path,
) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "escape").symlink_to("/etc")
    agent = new_agent(PERSYS_BIND_ROOTS=str(tmp_path / "allowed"))
    agent.start()

    def bound(path: Path) -> agent_pb2.ContainerSpec:
        spec = agent_pb2.ContainerSpec()
        spec.CopyFrom(sleeper)
        spec.volumes.add(host_path=str(path), container_path="/given")
        return spec

    assert not agent.apply(unique_id, bound(tmp_path), revision="r1").applied
    assert agent.apply(unique_id, bound(tmp_path / "allowed" / "escape"), revision="r2").applied
    status = agent.wait_for(unique_id, agent_pb2.ACTUAL_STATE_FAILED)
    assert status.metadata["failure_reason"] == "INVALID_SPEC"
    assert "symbolic link" in status.message
    assert agent.apply(unique_id, bound(tmp_path / "allowed"), revision="r3").applied
    agent.wait_for(unique_id, agent_pb2.ACTUAL_STATE_RUNNING)


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        ([], {}, "persys-agent join"),
        ([], {"PERSYS_TLS_ENABLED": "false"}, "-insecure"),
        (["-insecure"], {"PERSYS_RECONCILE_INTERVAL": "soon"}, "PERSYS_RECONCILE_INTERVAL"),
        (["-insecure"], {"PERSYS_NODE_ID": "no spaces"}, "PERSYS_NODE_ID"),
        (["-insecure"], {"PERSYS_STATE_PATH": "/proc/nothing/state.db"}, "PERSYS_STATE_PATH"),
        (["-insecure"], {"DOCKER_HOST": "nonsense"}, "DOCKER_HOST"),
    ],
)
def test_the_agent_refuses_invalid_settings(
    flags: list[str], environment: dict[str, str], words: str, tmp_path: Path
) -> None:
    given = {"PERSYS_STATE_PATH": str(tmp_path / "state.db"), "PERSYS_GRPC_PORT": "0"}
    result = subprocess.run(
        [Path(sys.executable).parent / "persys-agent", *flags],
        env=os.environ | given | {"PERSYS_METRICS_PORT": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
