"""Runtimes of a third-party agent: commands of Docker, Compose and libvirt, or plain files.

Each runtime looks up workloads by id and keeps nothing in memory, so that it works after a restart.
"""

import asyncio
import json
import shutil
from base64 import b64decode
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol
from xml.sax.saxutils import escape

from third_party.contract import agent as pb

COMMAND_SECONDS = 120


class State(StrEnum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    MISSING = "Missing"


class TaskError(Exception):
    """The text is used unchanged in `last_error` and in the task."""


class Runtime(Protocol):
    async def apply(self, order: Any, behaviour: dict[str, Any]) -> None:
        """Create the workload of the order; a new revision replaces the old one."""

    async def remove(self, workload_id: str, behaviour: dict[str, Any]) -> None:
        """Stop and remove it. Does nothing if it is absent."""

    async def state(self, workload_id: str) -> State: ...


class Files:
    """A workload is a file. Tests delete and rewrite these files to simulate manual changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    async def apply(self, order: Any, behaviour: dict[str, Any]) -> None:
        running = order.desired_state != pb.DESIRED_STATE_STOPPED
        if running:
            await asyncio.sleep(behaviour["work_seconds"])
            if error := behaviour["errors"].get(order.id):
                self._path(order.id).unlink(missing_ok=True)  # a new revision removed the old one
                raise TaskError(error)
        elif await self.state(order.id) is State.RUNNING:
            await asyncio.sleep(behaviour["stop_seconds"])
        state = State.RUNNING if running else State.STOPPED
        written = {"state": state, "revision": order.revision_id}
        part = self._path(order.id).with_suffix(".part")
        part.write_text(json.dumps(written))
        part.rename(self._path(order.id))

    async def remove(self, workload_id: str, behaviour: dict[str, Any]) -> None:
        running = await self.state(workload_id) is State.RUNNING
        await asyncio.sleep(behaviour["stop_seconds"] if running else behaviour["work_seconds"])
        self._path(workload_id).unlink(missing_ok=True)

    async def state(self, workload_id: str) -> State:
        with suppress(FileNotFoundError):
            return State(json.loads(self._path(workload_id).read_text())["state"])
        return State.MISSING

    def _path(self, workload_id: str) -> Path:
        return self._folder / f"{workload_id}.json"


class Containers:
    """One container per workload; its image is always pulled."""

    def __init__(self, node_id: str, docker_config: str) -> None:
        """`docker_config` is the folder with the registry credentials."""
        self._node_id = node_id
        self._config = docker_config

    async def apply(self, order: Any, behaviour: dict[str, Any]) -> None:
        name, spec = self._name(order.id), order.spec.container
        if order.desired_state == pb.DESIRED_STATE_STOPPED:
            if await self.state(order.id) is State.RUNNING:
                await _run("docker", "stop", "-t", str(behaviour["stop_seconds"]), name)
            return
        if await self._revision(order.id) == order.revision_id:
            await _run("docker", "start", name)
            return
        await _run("docker", "rm", "-f", name, fails=True)
        code, text = await _done("docker", "--config", self._config, "pull", "-q", spec.image)
        if code:
            raise TaskError(f"failed to pull image: {text}")
        words = ["docker", "run", "-d", "--name", name, "--label", "persys.managed=true"]
        words += ["--label", f"persys.workload_id={order.id}"]
        words += ["--label", f"persys.revision_id={order.revision_id}"]
        words += ["--memory", str(spec.resources.memory_bytes)]
        for key, value in spec.env.items():
            words += ["--env", f"{key}={value}"]
        await _run(*words, spec.image, *spec.command, *spec.args)

    async def remove(self, workload_id: str, behaviour: dict[str, Any]) -> None:
        name = self._name(workload_id)
        await _run("docker", "stop", "-t", str(behaviour["stop_seconds"]), name, fails=True)
        await _run("docker", "rm", "-f", "-v", name, fails=True)

    async def state(self, workload_id: str) -> State:
        format_ = "{{.State.Running}}"
        code, text = await _done("docker", "inspect", "--format", format_, self._name(workload_id))
        if code:
            return State.MISSING
        return State.RUNNING if text == "true" else State.STOPPED

    async def _revision(self, workload_id: str) -> str:
        format_ = '{{index .Config.Labels "persys.revision_id"}}'
        code, text = await _done("docker", "inspect", "--format", format_, self._name(workload_id))
        return "" if code else text

    def _name(self, workload_id: str) -> str:
        return f"{self._node_id}-{workload_id}"


class Stacks:
    """One Compose project per workload, named by the workload's id."""

    def __init__(self, folder: Path, command: str) -> None:
        self._folder = folder
        self._command = command.split()
        folder.mkdir(parents=True, exist_ok=True)

    async def apply(self, order: Any, behaviour: dict[str, Any]) -> None:
        if order.desired_state == pb.DESIRED_STATE_STOPPED:
            await self._compose(order.id, "stop", "-t", str(behaviour["stop_seconds"]))
            return
        self._file(order.id).write_bytes(b64decode(order.spec.compose.compose_yaml))
        await self._compose(order.id, "up", "-d", "--remove-orphans")

    async def remove(self, workload_id: str, behaviour: dict[str, Any]) -> None:
        if self._file(workload_id).exists():
            await self._compose(workload_id, "down", "-v", "-t", str(behaviour["stop_seconds"]))
            self._file(workload_id).unlink()

    async def state(self, workload_id: str) -> State:
        project = f"label=com.docker.compose.project={workload_id}"
        states = await _run("docker", "ps", "-a", "--format", "{{.State}}", "--filter", project)
        if not states:
            return State.MISSING
        return State.RUNNING if "running" in states.split() else State.STOPPED

    async def _compose(self, workload_id: str, *words: str) -> None:
        file = str(self._file(workload_id))
        await _run(*self._command, "-p", workload_id, "-f", file, *words)

    def _file(self, workload_id: str) -> Path:
        return self._folder / f"{workload_id}.yaml"


class Vms:
    """One libvirt domain per workload, named by the workload's id; its first disk is a copy of its path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def apply(self, order: Any, behaviour: dict[str, Any]) -> None:
        name, disk = order.id, self._folder / f"{order.id}.qcow2"
        state = await self.state(name)
        if order.desired_state == pb.DESIRED_STATE_STOPPED:
            if state is State.RUNNING:
                await _virsh("destroy", name)
            return
        if state is not State.MISSING and order.revision_id != self._revision(name):
            await self._undefine(name)  # a new revision is a new VM
            state = State.MISSING
        if state is State.MISSING:
            shutil.copy(order.spec.vm.disks[0].path, disk)
            disk.chmod(0o666)
            definition = self._folder / f"{name}.xml"
            definition.write_text(_domain(order, disk))
            (self._folder / f"{name}.revision").write_text(order.revision_id)
            await _virsh("define", str(definition))
        if state is not State.RUNNING:
            await _virsh("start", name)

    async def remove(self, workload_id: str, behaviour: dict[str, Any]) -> None:
        await self._undefine(workload_id)
        for path in self._folder.glob(f"{workload_id}.*"):
            path.unlink()

    async def state(self, workload_id: str) -> State:
        code, text = await _done("virsh", "-q", "-c", "qemu:///system", "domstate", workload_id)
        if code:
            return State.MISSING
        return State.RUNNING if text == "running" else State.STOPPED

    async def _undefine(self, name: str) -> None:
        for word in ("destroy", "undefine"):
            await _done("virsh", "-q", "-c", "qemu:///system", word, name)

    def _revision(self, name: str) -> str:
        path = self._folder / f"{name}.revision"
        return path.read_text() if path.exists() else ""


def _domain(order: Any, disk: Path) -> str:
    spec = order.spec.vm
    interfaces = "".join(
        f"<interface type='network'><source network='{escape(one.network)}'/>"
        f"<mac address='{one.mac_address}'/><model type='virtio'/></interface>"
        for one in spec.networks
    )
    return (
        f"<domain type='qemu'><name>{order.id}</name><memory unit='MiB'>{spec.memory_mb}</memory>"
        f"<vcpu>{spec.vcpus}</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os>"
        f"<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{disk}'/><target dev='vda' bus='virtio'/></disk>{interfaces}"
        "</devices></domain>"
    )


async def _virsh(*words: str) -> None:
    code, text = await _done("virsh", "-q", "-c", "qemu:///system", *words)
    if code:
        raise TaskError(f"libvirt: {text}")


async def _run(*words: str, fails: bool = False) -> str:
    """The output of the command. `fails`: the command may fail, because its object may be absent."""
    code, text = await _done(*words)
    if code and not fails:
        raise TaskError(text)
    return text


async def _done(*words: str) -> tuple[int, str]:
    """The exit code and the output; stderr if the command failed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(COMMAND_SECONDS):
        out, err = await process.communicate()
    code = process.returncode or 0
    return code, (err if code else out).decode(errors="replace").strip()
