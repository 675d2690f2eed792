"""apply, plan and delete with files: Compose files, node pools, --set, and what was changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run

WEB = "id: web\ncontainer:\n  image: nginx:1\n  env: {MODE: a, DB_PASSWORD: hunter2}\n"
POOL = "kind: nodepool\npool_id: burst\nprovider: exec\nmax: 2\n"


@pytest.fixture
def storing(cluster: Cluster) -> Cluster:
    cluster.stores_specs = True
    return cluster


def runs(view: WorkloadView) -> None:
    view.status = "Running"


def test_an_update_lists_the_changed_fields(storing: Cluster, ctl: Run) -> None:
    ctl("apply", "-f", "-", stdin=WEB)

    changed = WEB.replace("nginx:1", "nginx:2").replace("MODE: a", "LEVEL: debug")
    result = ctl("apply", "-f", "-", stdin=changed)

    assert result.out == (
        "web: updated\n"
        "    + container.env.LEVEL  debug\n"
        "    - container.env.MODE   a\n"
        "    ~ container.image      nginx:1 -> nginx:2\n"
    )
    assert ctl("apply", "-f", "-", stdin=changed).out == "web: unchanged\n"


def test_the_values_of_secrets_are_masked(storing: Cluster, ctl: Run) -> None:
    ctl("apply", "-f", "-", stdin=WEB)

    text = ctl("apply", "-f", "-", stdin=WEB.replace("hunter2", "hunter3"))
    data = ctl("apply", "-f", "-", "-o", "json", stdin=WEB.replace("hunter2", "secret://db"))

    assert text.out == "web: updated\n    ~ container.env.DB_PASSWORD  ******** -> ********\n"
    (report,) = json.loads(data.out)
    assert report["changes"] == [
        {"field": "container.env.DB_PASSWORD", "before": "********", "after": "secret://db"}
    ]


def test_an_update_is_printed_before_the_wait(storing: Cluster, ctl: Run) -> None:
    storing.after_change = runs
    ctl("apply", "-f", "-", stdin=WEB)

    result = ctl("apply", "-f", "-", "--wait", stdin=WEB.replace("nginx:1", "nginx:2"))

    assert result.out.startswith("web: updated\n    ~ container.image  nginx:1 -> nginx:2\nweb: ")
    assert result.out.endswith("web: Running\n")
    assert result.err == "next: show its output with `persysctl logs web`\n"


def test_the_report_in_json_has_the_change_and_the_outcome(storing: Cluster, ctl: Run) -> None:
    storing.after_change = runs

    result = ctl("apply", "-f", "-", "--wait", "-o", "json", stdin=WEB)

    (report,) = json.loads(result.out)
    assert (report["change"], report["outcome"]) == ("created", "Running")


def test_set_changes_every_workload_before_it_is_sent(storing: Cluster, ctl: Run) -> None:
    result = ctl(
        "apply", "-f", "-", "--set", "resources.memory_mb=64", "--set", "id=shop", stdin=WEB
    )

    assert result.out == "shop: created\n"
    assert storing.applied[0].spec.resources.memory_mb == 64


def test_an_invalid_value_of_set_is_named(cluster: Cluster, ctl: Run) -> None:
    result = ctl("apply", "-f", "-", "--set", "container.imag=x", stdin=WEB)

    assert result.code == 2
    assert result.err == (
        "error: --set container.imag=x: container.imag: unknown key; did you mean image?\n"
    )


def test_variables_come_from_the_environment_and_from_a_file(
    storing: Cluster, ctl: Run, tmp_path: Path
) -> None:
    text = "id: web\ncontainer: {image: 'nginx:${TAG}', env: {A: '${A}'}}\n"
    (tmp_path / "vars").write_text('# tags\nexport TAG="1.27"\nA=from file # comment\n')

    ctl("apply", "-f", "-", stdin=text)
    ctl("apply", "-f", "-", "--env-file", str(tmp_path / "vars"), stdin=text)
    ctl("apply", "-f", "-", "--interpolate", stdin=text, TAG="2", A="b")

    containers = [request.spec.container for request in storing.applied]
    assert [each.image for each in containers] == ["nginx:${TAG}", "nginx:1.27", "nginx:2"]
    assert [each.env["A"] for each in containers] == ["${A}", "from file", "b"]


def test_a_line_of_a_variable_file_must_be_an_assignment(ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("A=1\nnot a variable\n")

    result = ctl("apply", "-f", "-", "--env-file", str(tmp_path / "vars"), stdin=WEB)

    assert result.code == 2
    assert f"{tmp_path}/vars:2: invalid line" in result.err


def test_a_compose_file_is_named_with_its_missing_variables(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text("name: shop\nservices:\n  web:\n    image: nginx:${TAG}\n")

    result = ctl("apply", "-f", str(path))

    assert result.out == f"{path}: Compose file, applied as stack 'shop'\nshop: created\n"
    assert result.err.startswith(f"warning: {path}:4:18: variable TAG is not set")
    assert ctl("apply", "-f", str(path), "-o", "name").out == "shop\n"


@pytest.mark.parametrize("line", ["    build: .\n", "    volumes: ['./html:/srv']\n"])
def test_files_beside_a_compose_file_are_refused_with_their_line(
    line: str, cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text(f"name: shop\nservices:\n  web:\n    image: nginx\n{line}")

    result = ctl("apply", "-f", str(path))

    assert result.code == 2
    assert f"{path}:5:" in result.err
    assert "Git repository" in result.err
    assert cluster.applied == []


def test_a_refusal_of_the_scheduler_names_the_line_of_a_compose_file(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text("name: shop\nservices:\n  web:\n    image: nginx\n    privileged: true\n")
    problem = "spec.compose.inline_yaml: services.web.privileged: line 5: is not allowed"
    cluster.refusal = (control_pb2.INVALID_SPEC, problem)

    result = ctl("apply", "-f", str(path))

    assert f"refused: {path}:5:17: services.web.privileged: is not allowed" in result.err


def test_node_pools_are_applied_before_workloads(storing: Cluster, ctl: Run) -> None:
    both = f"{WEB}---\n{POOL}"

    created = ctl("apply", "-f", "-", stdin=both)
    again = ctl("apply", "-f", "-", stdin=both.replace("max: 2", "max: 3"))

    assert created.out == "nodepool/burst: created\nweb: created\n"
    assert again.out == "nodepool/burst: updated\n    ~ max  2 -> 3\nweb: unchanged\n"
    assert storing.pools["burst"].spec.max == 3


def test_a_shown_node_pool_is_applied_unchanged(storing: Cluster, ctl: Run) -> None:
    ctl("apply", "-f", "-", stdin=POOL)

    shown = ctl("nodepool", "get", "burst", "-o", "yaml")

    assert ctl("apply", "-f", "-", stdin=shown.out).out == "nodepool/burst: unchanged\n"


def test_a_plan_compares_node_pools(storing: Cluster, ctl: Run) -> None:
    new = ctl("plan", "-f", "-", stdin=POOL)
    ctl("apply", "-f", "-", stdin=POOL)
    changed = ctl("plan", "-f", "-", stdin=POOL.replace("max: 2", "max: 3"))
    same = ctl("plan", "-f", "-", stdin=POOL)

    assert (new.code, changed.code, same.code) == (1, 1, 0)
    assert "+ nodepool/burst: create" in new.out
    assert "~ nodepool/burst: update\n    ~ max  2 -> 3" in changed.out
    assert storing.pools["burst"].spec.max == 2


def test_a_file_names_what_to_delete(storing: Cluster, ctl: Run) -> None:
    both = f"{WEB}---\n{POOL}"
    ctl("apply", "-f", "-", stdin=both)

    result = ctl("workload", "delete", "-f", "-", stdin=both)

    assert result.out == "web: being deleted\nnodepool/burst: being deleted\n"
    assert storing.pools == {}


def test_delete_without_an_id_or_a_file_is_a_usage_error(ctl: Run) -> None:
    result = ctl("workload", "delete")

    assert (result.code, result.err) == (2, "error: expected workloads to delete, or -f FILE\n")


def test_capacity_is_of_workloads_only(ctl: Run) -> None:
    result = ctl("capacity", "-f", "-", stdin=POOL)

    assert result.code == 2
    assert "burst is a node pool" in result.err
