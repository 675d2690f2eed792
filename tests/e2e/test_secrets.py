"""A secret from persysctl to a container, as variable and file, in plain text nowhere else."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from e2e.cluster import Cluster

VALUE = "hunter2-of-the-e2e-test"
SPEC = """\
id: {name}
type: container
container:
  image: {image}
  init: true
  image_pull_policy: Never
  command:
    - sh
    - -c
    - "printf %s \\"$PASSWORD\\" | sha256sum; sha256sum < /etc/key; exec sleep 3600"
  env: {{PASSWORD: secret://{name}}}
  files:
    - {{path: /etc/key, content: secret://{name}, mode: 0440}}
"""


def test_a_secret_is_in_plain_text_only_in_its_container(
    cluster: Cluster,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    unique_id: str,
    demo_image: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "value").write_text(VALUE)
    (tmp_path / "spec.yaml").write_text(SPEC.format(name=unique_id, image=demo_image))
    digest = hashlib.sha256(VALUE.encode()).hexdigest()

    early = persysctl("apply", "-f", str(tmp_path / "spec.yaml"))
    assert f"secret {unique_id} does not exist" in early.stderr
    put = persysctl("secret", "put", unique_id, "--from-file", str(tmp_path / "value"))
    assert put.returncode == 0, put.stderr
    applied = persysctl("apply", "-f", str(tmp_path / "spec.yaml"), "--wait")
    assert applied.returncode == 0, applied.stderr

    assert persysctl("logs", unique_id).stdout.count(digest) == 2
    shown = [
        persysctl("workload", "get", unique_id, "-o", "json").stdout,
        persysctl("events", "-o", "json").stdout,
        persysctl("plan", "-f", str(tmp_path / "spec.yaml"), "-o", "json").stdout,
        persysctl("secret", "list", "-o", "json").stdout,
        *cluster.logs().values(),
    ]
    assert f"secret://{unique_id}" in shown[0]
    assert not [text for text in shown if VALUE in text]
    of_scheduler = [path for path in cluster.directory.iterdir() if "scheduler" in path.name]
    assert not [path for path in of_scheduler if VALUE.encode() in path.read_bytes()]

    assert persysctl("workload", "delete", unique_id, "--wait").returncode == 0
    assert persysctl("secret", "delete", unique_id).returncode == 0
    assert not list(cluster.directory.rglob(f"files/*/{unique_id}"))
