"""A wait for a workload that fails. The failure has to be seen within two seconds, so it runs alone."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FAILING = '{type: exec, command: ["false"], interval_seconds: 1, retries: 1}'
SPEC = """\
id: {name}
type: container
resources: {{cpu_millicores: 50, memory_mb: 16}}
container:
  image: {image}
  image_pull_policy: Never
  init: true
  {rest}
"""


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ('command: [sh, -c, "exit 3"]', "exited with code 3"),
        (f'command: [sleep, "3600"]\n  health_check: {FAILING}', "unhealthy"),
    ],
    ids=["exits at once", "fails its health check"],
)
def test_a_failed_wait_exits_with_1_and_names_the_next_command(
    rest: str,
    reason: str,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    demo_image: str,
    unique_id: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.format(name=unique_id, image=demo_image, rest=rest))

    waited = persysctl("workload", "apply", "-f", str(path), "--wait", "10m")

    assert waited.returncode == 1, waited.stdout
    assert reason in waited.stderr
    assert f"persysctl logs {unique_id}" in waited.stderr
    persysctl("workload", "delete", unique_id, "--wait")
