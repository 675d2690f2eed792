"""Containers as the docker command reports them, independent of our code."""

import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

_DEADLINE_SECONDS = 120


class Container(NamedTuple):
    """`id` and `started_at` identify one run: one of them changes with a restart."""

    workload_id: str
    id: str
    started_at: str
    running: bool
    env: tuple[str, ...]


def docker(*arguments: str) -> str:
    result = subprocess.run(
        ["docker", *arguments],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"docker {' '.join(arguments[:4])}: {result.stderr}"
    return result.stdout.strip()


def container_ids(node_id: str, workload_id: str = "") -> list[str]:
    filters = ["--filter", f"label=persys.node_id={node_id}"]
    if workload_id:
        filters += ["--filter", f"label=persys.workload_id={workload_id}"]
    return docker("ps", "-a", "-q", "--no-trunc", *filters).split()


def inspect(ids: Sequence[str]) -> list[Container]:
    """Containers that were removed in the meantime are left out."""
    if not ids:
        return []
    result = subprocess.run(
        ["docker", "inspect", *ids],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    return [
        Container(
            found["Config"]["Labels"]["persys.workload_id"],
            found["Id"],
            found["State"]["StartedAt"],
            found["State"]["Running"],
            tuple(found["Config"]["Env"] or ()),
        )
        for found in json.loads(result.stdout)
    ]


def remove_all_of(node_id: str) -> None:
    """Remove the containers, networks and volumes of a node."""
    remove(container_ids(node_id))
    for kind in ("network", "volume"):
        for name in docker(kind, "ls", "-q", "--filter", f"label=persys.node_id={node_id}").split():
            docker(kind, "rm", name)


def remove(ids: Sequence[str]) -> None:
    """Remove in parallel: one after the other, a hundred would take half a minute."""

    def remove_one(container_id: str) -> None:
        subprocess.run(
            ["docker", "rm", "-f", "-v", container_id],
            capture_output=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove_one, ids))
