"""persysctl run: a container from options, and the words of docker and kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


def test_the_options_are_the_fields_of_a_spec(cluster: Cluster, ctl: Run) -> None:
    result = ctl(
        *("run", "web", "--image", "nginx:1.27", "-p", "8080:80", "-p", "53:53/udp"),
        *("-e", "MODE=a=b", "-v", "data:/data", "-v", "/srv:/site:ro", "-l", "team=shop"),
        *("--cpu", "0.5", "--memory", "1.5g", "--restart", "on-failure:3"),
        *("--health-cmd", "test -e /ready", "--pull", "never", "--", "nginx", "-g", "daemon off;"),
    )

    assert (result.code, result.out) == (0, "web: created\n")
    (request,) = cluster.applied
    assert request.workload_id == "web"
    assert request.spec.resources == pb.ResourceRequirements(cpu_millicores=500, memory_mb=1536)
    assert request.spec.container == pb.ContainerSpec(
        image="nginx:1.27",
        command=["nginx", "-g", "daemon off;"],
        env={"MODE": "a=b"},
        labels={"team": "shop"},
        ports=[
            pb.Port(host_port=8080, container_port=80, protocol="tcp"),
            pb.Port(host_port=53, container_port=53, protocol="udp"),
        ],
        volumes=[pb.VolumeMount(host_path="/srv", container_path="/site", read_only=True)],
        managed_volumes=[pb.ManagedVolumeSpec(name="data", mount_path="/data")],
        restart_policy="on-failure:3",
        health_check=pb.HealthCheck(command=["sh", "-c", "test -e /ready"]),
        image_pull_policy="Never",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("web", "--image", "nginx"),
        ("--image", "nginx", "web"),
        ("-d", "--name", "web", "nginx"),
        ("--name", "web", "--image=nginx"),
    ],
)
def test_the_forms_of_kubectl_and_docker(
    words: tuple[str, ...], cluster: Cluster, ctl: Run
) -> None:
    assert ctl("run", *words).code == 0

    (request,) = cluster.applied
    assert (request.workload_id, request.spec.container.image) == ("web", "nginx")
    assert list(request.spec.container.command) == []


def test_the_command_of_docker(cluster: Cluster, ctl: Run) -> None:
    ctl("run", "--name", "job", "alpine", "sleep", "60")

    assert list(cluster.applied[0].spec.container.command) == ["sleep", "60"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nginx",), "for example `persysctl run my-nginx --image nginx`"),
        ((), "for example `persysctl run web --image nginx`"),
        (("web.yaml",), "use `persysctl apply -f web.yaml`"),
        (("web", "--image", "x", "-e", "MODE"), "invalid --env 'MODE': expected NAME=VALUE"),
        (("web", "--image", "x", "-p", "http"), "container.ports[0]: invalid port 'http'"),
        (("web", "--image", "x", "-v", "data"), "invalid --volume 'data': expected NAME:/path"),
        (("web", "--image", "x", "--memory", "512"), "for example 256m or 2g"),
        (("web", "--image", "x", "--cpu", "half"), "for example 0.5 or 500m"),
        (("Web", "--image", "x"), "id: "),
        (("web", "--image", "x", "--health", "tcp:1", "--health-cmd", "x"), "cannot be combined"),
    ],
)
def test_an_invalid_option_is_a_usage_error(
    words: tuple[str, ...], error: str, cluster: Cluster, ctl: Run
) -> None:
    result = ctl("run", *words)

    assert result.code == 2
    assert error in result.err
    assert cluster.applied == []


def test_an_existing_workload_is_not_replaced(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")

    result = ctl("run", "web", "--image", "nginx")

    assert result.code == 1
    assert "already exists; change it with `persysctl edit web`" in result.err
    assert cluster.applied == []


def test_a_dry_run_shows_the_plan_or_prints_the_spec_file(cluster: Cluster, ctl: Run) -> None:
    cluster.plans = [pb.WorkloadPlan(workload_id="web", action="create", node_id="n1")]
    words = ("run", "web", "--image", "nginx", "-p", "80:80", "--dry-run=client")

    planned = ctl(*words)
    printed = ctl(*words, "-o", "yaml")

    assert (planned.code, cluster.planned) == (0, ["web"])
    assert "+ web: create on n1" in planned.out
    assert cluster.applied == []
    assert ctl("apply", "-f", "-", stdin=printed.out).out == "web: created\n"
    assert cluster.applied[0].spec.container.ports[0].host_port == 80


def test_an_invalid_option_is_named_by_its_field_without_a_line(ctl: Run) -> None:
    result = ctl("run", "web", "--image", "nginx", "-p", "99999:80")

    assert result.code == 2
    assert result.err.startswith("error: command line: container.ports[0]: invalid port")


def test_replicas_run_a_set(cluster: Cluster, ctl: Run) -> None:
    result = ctl("run", "web", "--image", "nginx", "--replicas", "3")
    shown = ctl("run", "api", "--image", "nginx", "--replicas", "2", "--dry-run", "-o", "yaml")

    assert result.out == "web: created\n", result.err
    assert cluster.applied_sets[0].set.replicas == 3
    assert "replicas: 2\n" in shown.out
