"""From apply to Running as GetWorkload shows it, over bare create and start on the same Docker socket.

    python -m bench.containers

Rounds of both sides alternate, so that other load on the machine affects both.
"""

import asyncio
import subprocess
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter

import grpc

from bench.docker_socket import BareDocker
from bench.processes import BIN, free_port, process, scheduler
from bench.verdict import Verdict, report
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import IMAGE, ensure_image
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

COMMAND = ["sleep", "3600"]
CONTAINER = control_pb2.WorkloadSpec(
    type="container",
    resources=control_pb2.ResourceRequirements(memory_mb=32),
    container=control_pb2.ContainerSpec(image=IMAGE, command=COMMAND, init=True, pids_max=64),
)
SINGLES = 12
CALLERS = 16  # of the baseline
CROWD = 100
ROUNDS = 2


def main() -> None:
    ensure_image(LineProgress())
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/s.db") as (port, _, _),
        agent(Path(directory), port),
    ):
        report(*asyncio.run(_measure(port)))


def agent(
    directory: Path, scheduler_port: int, **settings: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    port = free_port()
    env = {
        "PERSYS_GRPC_PORT": str(port),
        "PERSYS_METRICS_PORT": str(free_port()),
        "PERSYS_STATE_PATH": str(directory / "agent.db"),
        "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
        "PERSYS_VM_IMAGES_DIR": str(directory / "images"),
        "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{scheduler_port}",
        "PERSYS_NODE_ID": f"bench-{port}",
        "PERSYS_LOG_LEVEL": "warn",
        # The benchmark loads the machine: admission control must not refuse work.
        "PERSYS_ADMISSION_CPU_PERCENT": "100",
        "PERSYS_ADMISSION_MEMORY_PERCENT": "100",
        "PERSYS_ADMISSION_DISK_PERCENT": "100",
        **settings,
    }
    return process([str(BIN / "persys-agent"), "-insecure"], env=env, port=port)


async def _measure(port: int) -> list[Verdict]:
    async with (
        BareDocker() as docker,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub = control_pb2_grpc.AgentControlStub(channel)
        ours, bare = [], []
        for number in range(SINGLES):
            bare.append(await _bare(docker, [f"bare-{number}"]))
            ours.append(await _ours(stub, [f"bench-{number}"]))
        crowd_ours, crowd_bare = [], []
        for number in range(ROUNDS):
            crowd_bare.append(await _bare(docker, [f"bare-{number}-{n}" for n in range(CROWD)]))
            crowd_ours.append(await _ours(stub, [f"bench-{number}-{n}" for n in range(CROWD)]))
    return [
        Verdict(
            "containers: 1 applied, over bare create+start",
            median(ours) / median(bare),
            at_most=1.3,
        ),
        Verdict(
            f"containers: {CROWD} at once, over bare create+start",
            min(crowd_ours) / min(crowd_bare),
            at_most=1.3,
        ),
    ]


async def _bare(docker: BareDocker, names: list[str]) -> float:
    started_at = perf_counter()
    created = await docker.run_many(names, IMAGE, COMMAND, at_once=CALLERS)
    seconds = perf_counter() - started_at
    for container_id in created:
        await docker.remove(container_id)
    return seconds


async def _ours(stub: control_pb2_grpc.AgentControlStub, names: list[str]) -> float:
    started_at = perf_counter()
    await until_running(stub, names)
    seconds = perf_counter() - started_at
    await until_gone(stub, names)
    return seconds


async def until_running(
    stub: control_pb2_grpc.AgentControlStub,
    names: list[str],
    spec: control_pb2.WorkloadSpec = CONTAINER,
) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_apply(stub, name, spec))
    # Sequential polls, and fewer for more workloads: polling must not dominate the measurement.
    pause = 0.005 * min(len(names), 10)
    for name in names:
        while (view := await _get(stub, name)).status != "Running":
            assert view.status == "Pending", f"{name}: {view.status} {view.reason.message}"
            await asyncio.sleep(pause)


async def until_gone(stub: control_pb2_grpc.AgentControlStub, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_delete(stub, name))
    for name in names:
        with suppress(_Gone):
            while True:
                await _get(stub, name)
                await asyncio.sleep(0.05)


async def _apply(
    stub: control_pb2_grpc.AgentControlStub, name: str, spec: control_pb2.WorkloadSpec
) -> None:
    response = await stub.ApplyWorkload(
        control_pb2.ApplyWorkloadRequest(workload_id=name, spec=spec), timeout=30
    )
    assert response.success, response.error_message


async def _delete(stub: control_pb2_grpc.AgentControlStub, name: str) -> None:
    request = control_pb2.DeleteWorkloadRequest(workload_id=name)
    response = await stub.DeleteWorkload(request, timeout=30)
    assert response.success, response.error_message


class _Gone(Exception):  # noqa: N818  # not an error: the expected end of a wait
    pass


async def _get(stub: control_pb2_grpc.AgentControlStub, name: str) -> control_pb2.WorkloadView:
    request = control_pb2.GetWorkloadRequest(workload_id=name)
    try:
        response = await stub.GetWorkload(request, timeout=30)
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.NOT_FOUND:
            raise _Gone from err
        raise
    view: control_pb2.WorkloadView = response.workload
    return view


if __name__ == "__main__":
    main()
