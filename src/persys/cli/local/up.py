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

from persys.cli.commands.wait import Goal, WaitTarget, wait_for
from persys.cli.connect.context_file import ContextFile, context_path, read_contexts, write_contexts
from persys.cli.connect.settings import SCHEDULER, STATE_DIR, context_settings
from persys.cli.connect.tls import client_tls
from persys.cli.framework.ages import BLANK, short_duration
from persys.cli.framework.exit_codes import ExitCode, SetupError
from persys.cli.framework.live import LiveState, Progress, Update, show_progress
from persys.cli.framework.output import align_columns
from persys.cli.local.demo import demo_request, ensure_image
from persys.cli.local.docker import docker_version, ensure_compose, ensure_docker, run_docker
from persys.cli.local.poll import poll
from persys.cli.local.processes import ControlPlane, Ports, state_dir_lock
from persys.client.grpc.channel import Trust
from persys.client.scheduler import SchedulerClient
from persys.errors import NotFoundError, SettingsError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.telemetry.logs import configure_logs

_DEMO_DEADLINE = timedelta(minutes=2)
_ANSWER_DEADLINE = timedelta(seconds=30)
_MARKER = "# Written by `persys up`, which rewrites it as long as this line is here.\n"
# The first line in files of older versions.
_OLD_MARKER = "# Written by `persys up`, which writes it anew as long as this line is here.\n"


def up(options: Namespace) -> ExitCode:
    configure_logs(level="warn", form="")  # certificates are issued in this process
    control_plane = _control_plane(options)
    with state_dir_lock(options.state_dir), show_progress() as progress:
        ensure_docker(options.state_dir, progress)
        ensure_compose(progress)
        ensure_image(progress)
        control_plane.start(progress)
        has_context = write_context(
            scheduler=control_plane.target,
            authority=control_plane.authority,
            gateway=control_plane.dashboard.rstrip("/"),
            agent=f"127.0.0.1:{control_plane.ports.agent}",
            trust=control_plane.trust,
        )
        url = _deploy(control_plane, options.demo_port, progress)
    print(next_steps(control_plane, url, has_context=has_context))
    return ExitCode.OK


def down(options: Namespace) -> ExitCode:
    with state_dir_lock(options.state_dir), show_progress() as progress:
        _control_plane(options).stop(progress)
    print(running_workloads())
    return ExitCode.OK


def status(options: Namespace) -> ExitCode:
    """Exit code 1 unless all processes run."""
    control_plane = _control_plane(options)
    rows = [["PROCESS", "STATE", "PID", "RESTARTS", "SINCE", "LAST EXIT", "LOG"]]
    now = SystemClock().now()
    for process in control_plane.processes:
        found = process.status()
        state = "stopped"
        if process.running() is not None:
            state = "running" if found.pid else "restarting"
        is_running = state == "running"
        started = datetime.fromisoformat(found.started_at) if is_running else now
        since = short_duration((now - started).total_seconds()) if is_running else BLANK
        pid = str(found.pid) if is_running else BLANK
        restarts = str(found.restarts) if state != "stopped" else BLANK
        last_exit = found.last_exit or BLANK
        rows.append([process.name, state, pid, restarts, since, last_exit, str(process.log_path)])
    print(align_columns(rows))
    return ExitCode.OK if all(row[1] == "running" for row in rows[1:]) else ExitCode.FAILED


def clean_demo(options: Namespace) -> ExitCode:
    workload_id = demo_request(host_port=None).workload_id
    control_plane = _control_plane(options)
    with (
        show_progress() as progress,
        SchedulerClient(control_plane.target, trust=_trust(control_plane)) as client,
    ):
        try:
            client.get_workload(workload_id)
            client.delete(workload_id)
        except NotFoundError:
            progress.done(f"workload {workload_id} does not exist")
            return ExitCode.OK
        except UnavailableError as err:
            raise UnavailableError(
                f"no response from the scheduler at {control_plane.target}, which removes the workload; "
                f"start it with `{program('persys')} up`"
            ) from err
        progress.step(f"removing workload {workload_id}")
        _wait(client, workload_id, WaitTarget(Goal.GONE), progress)
        progress.done(f"workload {workload_id} is removed")
    return ExitCode.OK


def _control_plane(options: Namespace) -> ControlPlane:
    return ControlPlane(
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


def _trust(control_plane: ControlPlane) -> Trust | None:
    """The TLS settings of the local control plane, or those of the user."""
    if control_plane.trust.files.certificate.exists():
        return control_plane.trust
    return client_tls(Namespace(), os.environ, context_settings())


def _deploy(control_plane: ControlPlane, demo_port: int | None, progress: Progress) -> str:
    """Deploy the demo workload and return its URL."""
    request = demo_request(host_port=demo_port)
    # Explicit, so that a demo that the user stopped is started again.
    request.desired_state = Goal.RUNNING.value
    workload_id = request.workload_id
    with SchedulerClient(control_plane.target, trust=control_plane.trust) as client:
        progress.step(f"deploying workload {workload_id}")
        revision = client.apply(request)
        before = client.get_workload(workload_id)
        if before.status == "Failed":
            client.retry(workload_id)
            _wait(client, workload_id, WaitTarget(Goal.RUNNING, revision, before), progress)
        else:
            _wait(client, workload_id, WaitTarget(Goal.RUNNING, revision), progress)
    host_port = request.spec.container.ports[0].host_port
    url = f"http://127.0.0.1:{host_port}/"
    progress.step(f"waiting for a response at {url}")
    if poll(lambda: _answers(host_port), within=_ANSWER_DEADLINE) is None:
        raise SetupError(
            f"workload {workload_id} is running, but {url} does not respond; "
            f"check its output with `{program('persysctl')} logs {workload_id}`"
        )
    progress.done(f"workload {workload_id} responds at {url}")
    return url


def _wait(
    client: SchedulerClient, workload_id: str, target: WaitTarget, progress: Progress
) -> None:
    outcome = wait_for(
        client, {workload_id: target}, within=_DEMO_DEADLINE, update=_report_changes(progress)
    )[workload_id]
    if outcome.exit is not ExitCode.OK:
        hint = outcome.hint and f"; next: {outcome.hint}"
        raise SetupError(f"workload {workload_id}: {outcome.word}: {outcome.why}{hint}")


def _report_changes(progress: Progress) -> Update:
    """Report each change once."""
    reported: dict[str, LiveState] = {}

    def update(states: Mapping[str, LiveState]) -> None:
        for workload_id, state in states.items():
            if reported.get(workload_id) != state:
                detail = state.detail and f" ({state.detail})"
                progress.step(f"workload {workload_id}: {state.headline}{detail}")
                reported[workload_id] = state

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
    settings = {
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
        found = ContextFile({}, _MARKER)
        if (path := context_path()).exists():
            if not path.read_text(encoding="utf-8").startswith((_MARKER, _OLD_MARKER)):
                return False
            found = read_contexts()
        write_contexts(ContextFile({**found.content, **settings}, found.comments))
    except (OSError, UnicodeDecodeError, SettingsError) as err:
        raise SetupError(f"cannot write {context_path()}: {err}") from err
    return True


def next_steps(control_plane: ControlPlane, url: str, *, has_context: bool) -> str:
    """`has_context`: persysctl finds the address and the certificate in its context."""
    at = (
        ""
        if has_context or control_plane.target == SCHEDULER
        else f" --scheduler {control_plane.target}"
    )
    if not has_context:
        files = control_plane.trust.files
        at += f" --ca {files.roots} --cert {files.certificate} --key {files.key}"
    where = (
        "" if control_plane.state_dir == STATE_DIR else f" --state-dir {control_plane.state_dir}"
    )
    ctl = f"{program('persysctl')}{at}"
    return f"""
Persys is running on this machine. Next steps:
  curl {url}
  {ctl} node list
  {ctl} workload list
  {ctl} workload get hello
  {ctl} workload stop hello --wait
  {ctl} token create --role admin --name me   # to sign in at {control_plane.dashboard}
  {program("persys")} down{where}"""


def running_workloads() -> str:
    """List the workloads, which keep running without the control plane."""
    if docker_version() is None:
        return "Docker does not respond, so the running workloads are not known."
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
