"""Access to a workload: from persysctl through the scheduler and the agent's connection to Docker."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import BIN, Cluster
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb


@pytest.fixture
def workload(cluster: Cluster, demo_image: str, unique_id: str) -> str:
    line = "echo hello; echo trouble >&2; trap exit TERM; while :; do sleep 0.1; done"
    container = pb.ContainerSpec(image=demo_image, command=["sh", "-c", line])
    resources = pb.ResourceRequirements(cpu_millicores=50, memory_mb=16)
    spec = pb.WorkloadSpec(type="container", resources=resources, container=container)
    cluster.run_all([unique_id], spec)
    return unique_id


def test_logs_exec_and_usage_work_through_the_scheduler(
    cluster: Cluster, workload: str, tmp_path: Path
) -> None:
    def persysctl(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "persysctl", "--scheduler", cluster.target, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERSYS_INSECURE": "true"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    eventually(lambda: "trouble" in persysctl("logs", workload).stderr, "it has written")
    logs = persysctl("logs", workload, "--tail", "10")
    result = persysctl("exec", "-i", workload, "--", "sh", "-c", "cat; exit 9", stdin="x" * 300_000)
    eventually(lambda: persysctl("stats", workload).returncode == 0, "figures", within=40)
    figures = json.loads(persysctl("stats", workload, "-o", "json").stdout)

    assert (logs.stdout, logs.stderr) == ("hello\n", "trouble\n")
    assert (result.returncode, len(result.stdout), result.stderr) == (9, 300_000, "")
    assert int(figures["memory_bytes"]) > 0
    assert workload in persysctl("top").stdout
