"""What to type next, with paths that work from where the user stands."""

import sys
from pathlib import Path

from persys.cli.docker import docker_version, run_docker
from persys.cli.plane import Plane
from persys.cli.settings import SCHEDULER, STATE_DIR


def next_steps(plane: Plane, url: str, *, has_context: bool) -> str:
    """`has_context`: persysctl knows by itself where and with which certificate."""
    at = "" if has_context or plane.target == SCHEDULER else f" --scheduler {plane.target}"
    if not has_context:
        files = plane.trust.files
        at += f" --ca {files.roots} --cert {files.certificate} --key {files.key}"
    where = "" if plane.state_dir == STATE_DIR else f" --state-dir {plane.state_dir}"
    ctl = f"{program('persysctl')}{at}"
    return f"""
Persys runs on this machine. Try next:
  curl {url}
  {ctl} node list
  {ctl} workload list
  {ctl} workload get hello
  {ctl} workload stop hello --wait
  {ctl} token create --role admin --name me   # to sign in at {plane.dashboard}
  {program("persys")} down{where}"""


def what_still_runs() -> str:
    """Workloads outlive the control plane, which may surprise; so they are named."""
    if docker_version() is None:
        return "Docker gives no answer, so what still runs is not known."
    listed = run_docker(
        *("ps", "--filter", "label=persys.managed=true"),
        *("--format", '{{.Names}}  {{.Status}}  workload {{.Label "persys.workload_id"}}'),
    )
    lines = listed.stdout.decode().splitlines()
    if not lines:
        return "Docker was left running; no workloads run."
    containers = "\n".join(f"  {line}" for line in lines)
    return (
        "Docker was left running, and these workloads go on without the control plane:\n"
        f"{containers}\n"
        f"`{program('persys')} up` takes those of this node over again."
    )


def program(name: str) -> str:
    """The console script beside the running interpreter, as short as the current directory allows."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        return name
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
