"""Secrets that a scheduler reads from a real Vault when it sends an order, and the errors if it cannot."""

from collections.abc import Iterator

import pytest

from e2e import containers
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.wire.gen.control.v1 import control_pb2 as pb
from vault.deployment import Deployment
from vault.server import VaultServer

pytestmark = pytest.mark.full


@pytest.fixture
def client(server: VaultServer, deployment: Deployment) -> Iterator[SchedulerClient]:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.set_variables(deployment.agent, server.approle("persys-agent"))
    deployment.agent.set("PERSYS_DOCKER_ENABLED", "true")
    deployment.scheduler.start()
    deployment.agent.start()
    with deployment.admin_client() as client:
        deployment.wait_until_ready(client)
        yield client
    containers.remove(containers.container_ids(deployment.node_id))


def apply(client: SchedulerClient, name: str, image: str, reference: str) -> None:
    container = pb.ContainerSpec(
        image=image, command=["sleep", "3600"], env={"PASSWORD": reference}, init=True
    )
    spec = pb.WorkloadSpec(type="container", container=container)
    client.apply(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))


def wait_for(client: SchedulerClient, name: str, status: str) -> pb.WorkloadView:
    eventually(
        lambda: client.get_workload(name).status == status,
        lambda: f"{name} to be {status}\n{client.get_workload(name)}",
    )
    return client.get_workload(name)


@pytest.mark.parametrize(("mark", "value"), [("", "hunter-2"), ("@1", "hunter-1")])
def test_a_variable_has_the_requested_version_and_no_view_shows_it(
    server: VaultServer,
    client: SchedulerClient,
    deployment: Deployment,
    unique_id: str,
    demo_image: str,
    mark: str,
    value: str,
) -> None:
    for version in ("hunter-1", "hunter-2"):
        server.run(f"vault kv put secret/persys/{unique_id} password={version}")
    reference = f"secret://vault/secret/persys/{unique_id}#password{mark}"

    apply(client, unique_id, demo_image, reference)

    view = wait_for(client, unique_id, "Running")
    (container,) = containers.inspect(containers.container_ids(deployment.node_id, unique_id))
    assert f"PASSWORD={value}" in container.env
    assert view.spec.container.env["PASSWORD"] == reference
    shown = (str(view), str(client.list_events()), deployment.scheduler.log)
    assert not [text for text in shown if value in text]


def test_a_missing_field_is_named_and_the_order_waits_for_it(
    server: VaultServer,
    client: SchedulerClient,
    deployment: Deployment,
    unique_id: str,
    demo_image: str,
) -> None:
    apply(client, unique_id, demo_image, f"secret://vault/secret/persys/{unique_id}#key")

    eventually(
        lambda: unique_id in client.get_workload(unique_id).reason.message,
        lambda: str(client.get_workload(unique_id)),
    )
    assert not containers.container_ids(deployment.node_id, unique_id)
    server.run(f"vault kv put secret/persys/{unique_id} key=found")
    client.retry(unique_id)

    wait_for(client, unique_id, "Running")
    (container,) = containers.inspect(containers.container_ids(deployment.node_id, unique_id))
    assert "PASSWORD=found" in container.env
