"""`persys up`, `down`, `status` and `clean-demo`: all of Persys on one machine.

Each is idempotent: what already runs with the right settings is not touched.
"""

import http.client
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from persys.cli.commands.wait import Goal, Wanted, wait_for
from persys.cli.connect.context_file import ContextFile, context_path, read_contexts, write_contexts
from persys.cli.connect.settings import SCHEDULER, STATE_DIR, read_file
from persys.cli.connect.tls import trust_of
from persys.cli.framework.ages import NOT_SAID, short
from persys.cli.framework.exit_codes import Exit, SetUpError
from persys.cli.framework.live import Progress, Update, showing
from persys.cli.framework.output import aligned
from persys.cli.local.demo import demo_request, ensure_image
from persys.cli.local.docker import docker_version, ensure_compose, ensure_docker, run_docker
from persys.cli.local.poll import poll
from persys.cli.local.processes import Plane, Ports, alone
from persys.client.grpc.channel import Trust
from persys.client.scheduler import SchedulerClient
from persys.errors import NotFoundError, SettingsError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.telemetry.logs import configure_logs

_DEMO_DEADLINE = timedelta(minutes=2)
_ANSWER_DEADLINE = timedelta(seconds=30)
_OURS = "# Written by `persys up`, which rewrites it as long as this line is here.\n"
# The first line in files of older versions.
_OURS_BEFORE = "# Written by `persys up`, which writes it anew as long as this line is here.\n"


def up(options: Namespace) -> Exit:
    configure_logs(level="warn", form="")  # certificates are issued in this process
    plane = _plane(options)
    with alone(options.state_dir), showing() as progress:
        ensure_docker(options.state_dir, progress)
        ensure_compose(progress)
        ensure_image(progress)
        plane.start(progress)
        has_context = write_context(
            scheduler=plane.target,
            authority=plane.authority,
            gateway=plane.dashboard.rstrip("/"),
            agent=f"127.0.0.1:{plane.ports.agent}",
            trust=plane.trust,
        )
        url = _deploy(plane, options.demo_port, progress)
    print(next_steps(plane, url, has_context=has_context))
    return Exit.OK


def down(options: Namespace) -> Exit:
    with alone(options.state_dir), showing() as progress:
        _plane(options).stop(progress)
    print(what_still_runs())
    return Exit.OK


def status(options: Namespace) -> Exit:
    """Exit code 1 unless all processes run."""
    plane = _plane(options)
    rows = [["PROCESS", "STATE", "PID", "RESTARTS", "SINCE", "LAST EXIT", "LOG"]]
    now = SystemClock().now()
    for process in plane.processes:
        found = process.status()
        state = "stopped"
        if process.running() is not None:
            state = "running" if found.pid else "restarting"
        runs = state == "running"
        started = datetime.fromisoformat(found.started_at) if runs else now
        since = short((now - started).total_seconds()) if runs else NOT_SAID
        pid = str(found.pid) if runs else NOT_SAID
        restarts = str(found.restarts) if state != "stopped" else NOT_SAID
        last_exit = found.last_exit or NOT_SAID
        rows.append([process.name, state, pid, restarts, since, last_exit, str(process.log_path)])
    print(aligned(rows))
    return Exit.OK if all(row[1] == "running" for row in rows[1:]) else Exit.FAILED


def clean_demo(options: Namespace) -> Exit:
    workload_id = demo_request(host_port=None).workload_id
    plane = _plane(options)
    with showing() as progress, SchedulerClient(plane.target, trust=_trust(plane)) as client:
        try:
            client.get_workload(workload_id)
            client.delete(workload_id)
        except NotFoundError:
            progress.done(f"workload {workload_id} does not exist")
            return Exit.OK
        except UnavailableError as err:
            raise UnavailableError(
                f"no answer from the scheduler at {plane.target}, which removes the workload; "
                f"start it with `{program('persys')} up`"
            ) from err
        progress.doing(f"removing workload {workload_id}")
        _wait(client, workload_id, Wanted(Goal.GONE), progress)
        progress.done(f"workload {workload_id} is removed")
    return Exit.OK


def _plane(options: Namespace) -> Plane:
    return Plane(
        options.state_dir,
        Ports(
            ca=options.ca_port,
            scheduler=options.scheduler_port,
            scheduler_metrics=options.scheduler_metrics_port,
            agent=options.agent_port,
            agent_metrics=options.agent_metrics_port,
            gateway=options.gateway_port,
            gateway_public=options.gateway_public_port,
        ),
    )


def _trust(plane: Plane) -> Trust | None:
    """The TLS settings of the local control plane, or those of the user."""
    if plane.trust.files.certificate.exists():
        return plane.trust
    return trust_of(Namespace(), os.environ, read_file())


def _deploy(plane: Plane, demo_port: int | None, progress: Progress) -> str:
    """Deploy the demo workload and return its URL."""
    request = demo_request(host_port=demo_port)
    # Explicit, so that a demo that the user stopped is started again.
    request.desired_state = Goal.RUNNING.value
    workload_id = request.workload_id
    with SchedulerClient(plane.target, trust=plane.trust) as client:
        progress.doing(f"deploying workload {workload_id}")
        revision = client.apply(request)
        before = client.get_workload(workload_id)
        if before.status == "Failed":
            client.retry(workload_id)
            _wait(client, workload_id, Wanted(Goal.RUNNING, revision, before), progress)
        else:
            _wait(client, workload_id, Wanted(Goal.RUNNING, revision), progress)
    host_port = request.spec.container.ports[0].host_port
    url = f"http://127.0.0.1:{host_port}/"
    progress.doing(f"waiting for an answer at {url}")
    if poll(lambda: _answers(host_port), within=_ANSWER_DEADLINE) is None:
        raise SetUpError(
            f"workload {workload_id} is running, but there is no answer at {url}; "
            f"check its output with `{program('persysctl')} logs {workload_id}`"
        )
    progress.done(f"workload {workload_id} answers at {url}")
    return url


def _wait(client: SchedulerClient, workload_id: str, wanted: Wanted, progress: Progress) -> None:
    outcome = wait_for(
        client, {workload_id: wanted}, within=_DEMO_DEADLINE, update=_telling(progress)
    )[workload_id]
    if outcome.exit is not Exit.OK:
        hint = outcome.hint and f"; next: {outcome.hint}"
        raise SetUpError(f"workload {workload_id}: {outcome.word}: {outcome.why}{hint}")


def _telling(progress: Progress) -> Update:
    """Report each change once."""
    told: dict[str, tuple[str, str]] = {}

    def update(states: Mapping[str, tuple[str, str]]) -> None:
        for workload_id, (state, why) in states.items():
            if told.get(workload_id) != (state, why):
                progress.doing(f"workload {workload_id}: {state}{why and f' ({why})'}")
                told[workload_id] = (state, why)

    return update


def _answers(port: int) -> bool | None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.HTTPStatus.OK or None
        except (OSError, http.client.HTTPException):
            return None


def write_context(
    *, scheduler: str, authority: str, gateway: str, agent: str, trust: Trust
) -> bool:
    """False if the file was not written by `persys up`; it is then left unchanged.

    Other contexts in the file are kept.
    """
    ours = {
        "transport": "grpc",
        "grpc_endpoint": scheduler,
        "api_endpoint": gateway,
        "ca_endpoint": authority,
        "agent_endpoint": agent,
        "ca_cert_path": str(trust.files.roots),
        "cert_path": str(trust.files.certificate),
        "key_path": str(trust.files.key),
    }
    try:
        found = ContextFile({}, _OURS)
        if (path := context_path()).exists():
            if not path.read_text(encoding="utf-8").startswith((_OURS, _OURS_BEFORE)):
                return False
            found = read_contexts()
        write_contexts(ContextFile({**found.content, **ours}, found.comments))
    except (OSError, UnicodeDecodeError, SettingsError) as err:
        raise SetUpError(f"cannot write {context_path()}: {err}") from err
    return True


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
