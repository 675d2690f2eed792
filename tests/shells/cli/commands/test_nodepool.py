"""persysctl nodepool create, list, get, plan, pause, resume and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persys.wire.gen.control.v1.control_pb2 import (
    FailureReason,
    MachineView,
    NodePoolStep,
    PlanNodePoolResponse,
)

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run

POOL = """\
kind: nodepool
pool_id: burst
provider: ec2
region: eu-central-1
image: ami-1
sizes:
  - name: t3.large
    cpu_millicores: 2000
    memory_mb: 7600
    disk_gb: 40
    hour_price: 0.09
min: 0
max: 5
spend_per_hour_max: 1
idle_after: 10m
provision_deadline: 15m
labels: {pool: burst}
taints: [burst=only]
software: {url: "https://example.com/persys.deb", sha256: abc}
options: {subnet: s-1, public: true}
credentials: aws
"""


def created(ctl: Run, folder: Path) -> None:
    file = folder / "pool.yaml"
    file.write_text(POOL)
    assert ctl("nodepool", "create", "-f", str(file)).code == 0


def test_a_pool_is_created_from_a_file(ctl: Run, cluster: Cluster, tmp_path: Path) -> None:
    created(ctl, tmp_path)

    spec = cluster.pools["burst"].spec
    assert (spec.provider, spec.idle_after_seconds, spec.provision_deadline_seconds) == (
        "ec2",
        600,
        900,
    )
    assert spec.sizes[0].hour_price == 0.09
    assert dict(spec.options) == {"subnet": "s-1", "public": "true"}
    assert spec.software_sha256 == "abc"


def test_an_unknown_field_and_another_kind_are_refused(ctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL.replace("max: 5", "maxx: 5"))
    unknown = ctl("nodepool", "create", "-f", str(file))
    file.write_text("kind: workload\n")
    other = ctl("nodepool", "create", "-f", str(file))

    assert "maxx: unknown key; did you mean max?" in unknown.err
    assert unknown.err.startswith(f"error: {file}:")
    assert "kind: invalid kind 'workload': expected set, job, service or nodepool" in other.err


def test_a_refusal_of_the_scheduler_is_shown(ctl: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster.refusal = (FailureReason.INVALID_SPEC, "min: invalid min 9")
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)

    refused = ctl("nodepool", "create", "-f", str(file))

    assert refused.code != 0
    assert "min: invalid min 9" in refused.err


def test_pools_are_listed_and_shown_with_their_machines(
    ctl: Run, cluster: Cluster, tmp_path: Path
) -> None:
    created(ctl, tmp_path)
    cluster.pools["burst"].spend_per_hour = 0.09
    machine = MachineView(name="home-burst-1", size="t3.large", hour_price=0.09, state="booting")
    cluster.pools["burst"].machines.append(machine)

    listed = ctl("nodepool", "list").out.splitlines()
    shown = ctl("nodepool", "get", "burst").out

    assert listed[1].split()[:8] == ["burst", "ec2", "Active", "1", "0", "5", "0.09", "1"]
    assert "home-burst-1" in shown
    assert "0.09 of 1 per hour" in shown
    assert ctl("nodepool", "list", "-o", "name").out == "burst\n"


def test_a_plan_shows_steps_and_cost(ctl: Run, cluster: Cluster) -> None:
    cluster.pool_plan = PlanNodePoolResponse(
        steps=[
            NodePoolStep(
                action="create",
                machine="home-burst-2",
                size="t3.large",
                hour_price=0.09,
                reason="workload web waits for capacity",
            ),
            NodePoolStep(action="hold", reason="5 machines are under way"),
        ],
        hour_price=0.09,
        spend_per_hour=0.18,
    )

    planned = ctl("nodepool", "plan", "burst").out.splitlines()

    assert planned == [
        "+ create home-burst-2 (t3.large, 0.09/h): workload web waits for capacity",
        "! hold: 5 machines are under way",
        "1 to create for 0.09 per hour; 0.18 now, 0.27 after",
    ]


def test_a_pool_is_paused_resumed_and_deleted(ctl: Run, cluster: Cluster, tmp_path: Path) -> None:
    created(ctl, tmp_path)

    paused = ctl("nodepool", "pause", "burst")
    was_paused = cluster.pools["burst"].paused
    ctl("nodepool", "resume", "burst")
    resumed = not cluster.pools["burst"].paused
    deleted = ctl("nodepool", "delete", "burst")

    assert was_paused
    assert resumed
    assert "creates no machines" in paused.out
    assert "is being deleted" in deleted.out
    assert not cluster.pools
