"""Containers from submit to Running: bare Docker, Persys, and Swarm and Nomad if present, in one run.

    python -m bench.side_by_side [CONTAINERS]

One container, then CONTAINERS at once (default 30). All use one Docker daemon, which is started for this run:
Swarm mode would change the Docker of the host. Rounds alternate, so that other load on the machine affects
all of them. Nomad takes part if its program is on PATH.

What Persys, Swarm and Nomad add to one container is a nearly constant time. As a ratio it depends on how long
Docker takes: on a quiet machine bare Docker is faster, and the same addition is a larger ratio.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import grpc

from bench.containers import CALLERS, COMMAND, agent, until_gone, until_running
from bench.docker_socket import BareDocker
from bench.processes import free_port, process, scheduler
from bench.verdict import Verdict, report
from e2e.own_docker import OwnDocker
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import IMAGE, ensure_image
from persys.wire.gen.control.v1 import control_pb2_grpc

SINGLES = 7
ROUNDS = 3
BARE = "bare Docker"
DEADLINE_SECONDS = 300.0

Run = Callable[[list[str]], Awaitable[float]]
"""Runs containers of these names, removes them, and returns the seconds until all were running."""


def main(count: int) -> None:
    ensure_image(LineProgress())
    docker = OwnDocker()
    try:
        docker.start()
        docker.copy_image(IMAGE)
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            port, _, _ = stack.enter_context(scheduler(f"sqlite:{directory}/s.db"))
            stack.enter_context(agent(Path(directory), port, DOCKER_HOST=docker.host))
            nomad = stack.enter_context(_nomad(Path(directory), docker.host))
            singles, many = asyncio.run(_measure(docker.host, port, nomad, count))
    finally:
        docker.close()
    report(*_verdicts("1 container", singles), *_verdicts(f"{count} at once", many))


def _verdicts(what: str, seconds: Mapping[str, list[float]]) -> list[Verdict]:
    floor = median(seconds[BARE])
    print(f"{what}: {BARE} takes {floor:.3f} s", flush=True)
    return [
        Verdict(f"side by side: {what}, {name} over {BARE}", median(taken) / floor)
        for name, taken in seconds.items()
        if name != BARE
    ]


async def _measure(
    host: str, port: int, nomad: Run | None, count: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    async with (
        BareDocker(host.removeprefix("unix://")) as docker,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        contenders = {BARE: _bare(docker), "Persys": _persys(channel), "Swarm": _swarm(host)}
        if nomad is not None:
            contenders["Nomad"] = nomad
        await _rounds(contenders, 1, 1, "first")  # connections and caches
        singles = await _rounds(contenders, SINGLES, 1, "one")
        many = await _rounds(contenders, ROUNDS, count, "many")
    return singles, many


async def _rounds(
    contenders: Mapping[str, Run], rounds: int, count: int, mark: str
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            names = [f"{name.split()[0].lower()}-{mark}-{number}-{one}" for one in range(count)]
            taken[name].append(await run(names))
    return taken


def _bare(docker: BareDocker) -> Run:
    async def run(names: list[str]) -> float:
        began = perf_counter()
        created = await docker.run_many(names, IMAGE, COMMAND, at_once=CALLERS)
        seconds = perf_counter() - began
        for container_id in created:
            await docker.remove(container_id)
        return seconds

    return run


def _persys(channel: grpc.aio.Channel) -> Run:
    stub = control_pb2_grpc.AgentControlStub(channel)

    async def run(names: list[str]) -> float:
        began = perf_counter()
        await until_running(stub, names)
        seconds = perf_counter() - began
        await until_gone(stub, names)
        return seconds

    return run


def _swarm(host: str) -> Run:
    """One service with as many replicas, in the network of plain containers."""
    docker = ("docker", "--host", host)
    _call(*docker, "swarm", "init", "--advertise-addr", "127.0.0.1")
    flags = ("--detach", "--init", "--network", "bridge", "--limit-memory", "32m")

    async def run(names: list[str]) -> float:
        began = perf_counter()
        create = (*docker, "service", "create", *flags, "--limit-pids", "64")
        service = _call(
            *create, "--name", names[0], "--replicas", str(len(names)), IMAGE, *COMMAND
        ).strip()
        running = (*docker, "service", "ps", service, "--format", "{{.CurrentState}}")

        async def all_run() -> bool:
            states = (await asyncio.to_thread(_call, *running)).splitlines()
            return sum(state.startswith("Running") for state in states) == len(names)

        await _until(all_run, "the service of Swarm runs")
        seconds = perf_counter() - began
        _call(*docker, "service", "rm", service)

        async def is_gone() -> bool:
            label = f"label=com.docker.swarm.service.id={service}"
            return not await asyncio.to_thread(_call, *docker, "ps", "-aq", "--filter", label)

        await _until(is_gone, "the service of Swarm is removed")
        return seconds

    return run


@contextmanager
def _nomad(directory: Path, host: str) -> Iterator[Run | None]:
    """A Nomad server and client in one process, if the program is installed."""
    program = shutil.which("nomad")
    if program is None:
        yield None
        return
    port = free_port()
    config = {
        "ports": {"http": port, "rpc": free_port(), "serf": free_port()},
        "plugin": [{"docker": [{"config": [{"endpoint": host}]}]}],
    }
    file = directory / "nomad.json"
    file.write_text(json.dumps(config))
    nomad = (program, "agent", "-dev", f"-config={file}")
    with process(list(nomad), port=port):
        yield _nomad_jobs(program, f"http://127.0.0.1:{port}", directory)


def _nomad_jobs(program: str, address: str, directory: Path) -> Run:
    async def run(names: list[str]) -> float:
        command, *arguments = COMMAND
        task = {
            "Name": "main",
            "Driver": "docker",
            "Config": {"image": IMAGE, "command": command, "args": arguments, "init": True},
            "Resources": {"CPU": 10, "MemoryMB": 32},
        }
        group = {"Name": "main", "Count": len(names), "Tasks": [task]}
        job = {"ID": names[0], "Name": names[0], "Type": "service", "TaskGroups": [group]}
        file = directory / f"{names[0]}.json"
        file.write_text(json.dumps({"Job": {**job, "Datacenters": ["dc1"]}}))
        at = f"-address={address}"
        began = perf_counter()
        _call(program, "job", "run", at, "-json", "-detach", str(file))

        async def all_run() -> bool:
            found = _call(program, "job", "allocs", at, "-json", names[0])
            states = [one["ClientStatus"] for one in json.loads(found) or ()]
            return states.count("running") == len(names)

        await _until(all_run, "the job of Nomad runs")
        seconds = perf_counter() - began
        _call(program, "job", "stop", at, "-purge", names[0])
        return seconds

    return run


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = perf_counter() + DEADLINE_SECONDS
    while not await holds():
        if perf_counter() > deadline:
            raise TimeoutError(f"not within {DEADLINE_SECONDS:g} s: {what}")
        await asyncio.sleep(0.01)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
