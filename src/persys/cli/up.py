"""`persys up`, `down`, `status` and `clean-demo`: all of Persys on one machine.

Each is idempotent: what already runs with the right settings is not touched.
"""

import http.client
import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta

from persys.cli.context import write_context
from persys.cli.demo import demo_request, ensure_image
from persys.cli.docker import ensure_compose, ensure_docker
from persys.cli.exits import Exit, SetUpError
from persys.cli.live import Update
from persys.cli.output import aligned
from persys.cli.patience import poll
from persys.cli.plane import Plane, Ports, alone
from persys.cli.progress import Progress, showing
from persys.cli.settings import read_file
from persys.cli.spans import NOT_SAID, short
from persys.cli.tips import next_steps, program, what_still_runs
from persys.cli.trust import trust_of
from persys.cli.verdict import Goal, Wanted
from persys.cli.waiting import wait_for
from persys.client.grpc.channel import Trust
from persys.client.scheduler import SchedulerClient
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.telemetry.logs import configure_logs

_DEMO_DEADLINE = timedelta(minutes=2)
_ANSWER_DEADLINE = timedelta(seconds=30)


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
