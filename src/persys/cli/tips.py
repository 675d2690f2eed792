"""The next commands after `persys up` and `down`, with paths relative to the current directory."""

import sys
from pathlib import Path

from persys.cli.docker import docker_version, run_docker
from persys.cli.plane import Plane
from persys.cli.settings import SCHEDULER, STATE_DIR


def next_steps(plane: Plane, url: str, *, has_context: bool) -> str:
    """`has_context`: persysctl finds the address and the certificate in its context."""
    at = "" if has_context or plane.target == SCHEDULER else f" --scheduler {plane.target}"
    if not has_context:
        files = plane.trust.files
        at += f" --ca {files.roots} --cert {files.certificate} --key {files.key}"
    where = "" if plane.state_dir == STATE_DIR else f" --state-dir {plane.state_dir}"
    ctl = f"{program('persysctl')}{at}"
    return f"""
Persys is running on this machine. Next steps:
  curl {url}
  {ctl} node list
  {ctl} workload list
  {ctl} workload get hello
  {ctl} workload stop hello --wait
  {ctl} token create --role admin --name me   # to sign in at {plane.dashboard}
  {program("persys")} down{where}"""


def what_still_runs() -> str:
    """List the workloads, which keep running without the control plane."""
    if docker_version() is None:
        return "Docker does not answer, so the running workloads are not known."
    listed = run_docker(
        *("ps", "--filter", "label=persys.managed=true"),
        *("--format", '{{.Names}}  {{.Status}}  workload {{.Label "persys.workload_id"}}'),
    )
    lines = listed.stdout.decode().splitlines()
    if not lines:
        return "Docker is still running; no workloads are running."
    containers = "\n".join(f"  {line}" for line in lines)
    return (
        "Docker and these workloads keep running without the control plane:\n"
        f"{containers}\n"
        f"`{program('persys')} up` manages those of this node again."
    )


def program(name: str) -> str:
    """The path of a console script, relative to the current directory if it is below it."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        return name
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
