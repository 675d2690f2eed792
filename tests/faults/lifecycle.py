"""The lifecycle of a workload under faults, phase by phase, and the conditions of each phase.

Two workloads of one type run on the node: the calls for `bad` fail, those for `good` do not. A phase is one
requested change or one event. While the fault is active: the agent runs, `good` reaches its goal, `bad`
reaches its goal or shows the cause, and nothing is removed without a request. After the fault, `bad` reaches
its goal too.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from faults.injection import BAD, GOOD, HANG, INJECTED
from faults.memory_libvirt import Domain
from faults.node import NODE, RunningAgent, World, a_context, a_running_agent
from faults.scenarios import SCENARIOS
from faults.unreached import TRIGGERS
from persys.agent.api.tunnel_server import AbortedError
from persys.agent.journal.records import DeletionMarker, JournalChange
from persys.agent.runtimes.detect import container_files
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, OwnerLabels
from persys.agent.runtimes.vm.domain_xml import NAMESPACE
from persys.agent.workloads.worker import NOT_SETTLED
from persys.core.agent.deviations import DRIFTED
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from persys.wire.gen.agent.v1 import agent_pb2 as pb

PHASES = (
    *("begin", "apply", "look", "ask", "update", "vanish", "pause"),
    *("stop", "start", "crash", "delete"),
)
GOALS: dict[str, Actual | None] = {
    **dict.fromkeys(
        ("begin", "apply", "look", "ask", "update", "vanish", "pause", "start"), Actual.RUNNING
    ),
    "stop": Actual.STOPPED,
    "crash": Actual.FAILED,
    "delete": None,
}
BEHIND = ("look", "vanish", "pause", "crash")  # changes without the agent
NOTICED_SECONDS = 35.0  # the agent checks everything every 30 s
STRAY = "stray"
HANG_SECONDS = 4000.0
SHOWN_SECONDS = 400.0
GOOD_SECONDS = 200.0
# The longest case: a `compose up` that hangs ends after 1,800 s. The longest back-off is five minutes.
RECOVERED_SECONDS = 2400.0
REPORT_BYTES_MAX = 200_000
REQUEST_SECONDS = 1300.0


def prepare(world: World) -> None:
    """The files of users and operators on the node."""
    directory = world.directory
    for name in (BAD, GOOD):
        (directory / "binds" / name / "repository" / "objects").mkdir(parents=True)
    (directory / "binds" / "image.raw").write_bytes(bytes(512))
    (directory / "binds" / "image.qcow2").write_bytes(b"QFI\xfb\0\0\0\3" + bytes(1016))
    credential = directory / "credentials" / "registry.json"
    credential.parent.mkdir()
    content = {"username": "u", "password": "p", "hosts": ["docker.io", "git.example"]}
    credential.write_text(json.dumps(content))
    credential.chmod(0o600)


class Lifecycle:
    """One scenario on one node."""

    def __init__(self, world: World, scenario: str) -> None:
        self.world = world
        self.scenario = scenario
        self._scenarios = {BAD: scenario, GOOD: scenario}
        self._taken = {BAD: True, GOOD: True}

    async def dry_run(self) -> dict[str, str]:
        """The first phase in which each call site is reached, by the site."""
        found: dict[str, str] = {}
        async with a_running_agent(self.world) as running:
            await self._create_remains(running)
            for phase in PHASES:
                await self._act(running, phase, BAD)
                await self._until_goal(running, phase, BAD, within=SHOWN_SECONDS)
                await asyncio.sleep(65)  # periodic work
                for site in self.world.injector.reached:
                    found.setdefault(str(site), phase)
        assert not self.world.injector.unlisted, self.world.injector.unlisted
        return found

    async def survive(self, site: str, kind: str, at: str) -> None:
        """`at` is the phase in which the site, or the call that leads to it, is reached."""
        injector = self.world.injector
        triggers = [TRIGGERS[site]] if site in TRIGGERS else []
        if at == PHASES[0]:
            injector.switch_on(site, kind, *triggers)
        async with a_running_agent(self.world) as running:
            await self._create_remains(running)
            for phase in PHASES:
                is_faulty = phase == at
                removed = len(self.world.removed())
                if is_faulty and phase != PHASES[0]:
                    injector.switch_on(site, kind, *triggers)
                await self._act(running, phase, BAD)
                if is_faulty:
                    await self._while_failing(running, phase, kind)
                    self._check_removed(phase, self.world.removed()[removed:])
                    injector.switch_off()
                    self.world.paths.release()
                if phase in BEHIND and not is_faulty:
                    await asyncio.sleep(NOTICED_SECONDS)
                await self._until_goal(running, phase, BAD, within=RECOVERED_SECONDS)
                if is_faulty:
                    await self._delete(running, BAD)
                    await self._delete(running, GOOD)
                    break
        self._check_empty()
        assert not injector.unlisted, injector.unlisted

    async def _create_remains(self, running: RunningAgent) -> None:
        """Create remains of a deleted workload, for the garbage collection."""
        world = self.world
        await running.journal.commit(
            JournalChange(deletion_markers=[DeletionMarker(WorkloadId(STRAY), 1)])
        )
        labels = OwnerLabels("default", NODE).labels | {WORKLOAD_LABEL: STRAY}
        world.docker.images.add("app")
        world.docker.create(STRAY, {"Image": "app", "Labels": labels})
        (
            container_files(world.settings, OwnerLabels("default", NODE)).directory(
                WorkloadId(STRAY)
            )
        ).mkdir(parents=True)
        marks = "".join(f'<p:label name="{name}" value="{labels[name]}"/>' for name in labels)
        metadata = f'<metadata><p:machine xmlns:p="{NAMESPACE}">{marks}</p:machine></metadata>'
        xml = f"<domain><name>{STRAY}</name><uuid>u</uuid>{metadata}</domain>"
        world.libvirt.domains["u"] = Domain(world.libvirt, xml)

    async def _while_failing(self, running: RunningAgent, phase: str, kind: str) -> None:
        injector = self.world.injector
        timeout = HANG_SECONDS if kind == HANG else SHOWN_SECONDS
        await self._act(running, "apply", GOOD)
        if not self._taken[GOOD]:  # the node has lost the workload type of the scenario
            self._scenarios[GOOD] = "container"
            await self._act(running, "apply", GOOD)
        await self._until_goal(running, "apply", GOOD, within=GOOD_SECONDS)
        await running.until(lambda: injector.struck > 0, "the call is made", within=SHOWN_SECONDS)
        await running.until(
            lambda: self._is_at_goal(running, phase, BAD) or self._is_shown(running),
            "bad is at its goal, or shows why not",
            within=timeout,
        )
        assert running.actual(GOOD) is Actual.RUNNING, running.status(GOOD)
        if running.errors:
            assert any(INJECTED in text for text in self.world.tracebacks), "no traceback is logged"
        assert _report_bytes(running) < REPORT_BYTES_MAX

    async def _act(self, running: RunningAgent, phase: str, name: str) -> None:
        match phase:
            case "begin" | "apply" | "update":
                if phase == PHASES[0] and self.scenario == "machine":
                    await self._add_image(running, "disk", "raw")
                await self._order(running, name, "r2" if phase == "update" else "r1")
            case "stop":
                await self._order(running, name, "r2", pb.DESIRED_STATE_STOPPED)
            case "start":
                self._lose_networks(name)
                await self._order(running, name, "r2")
            case "look":
                self._modify_manually(name)
            case "ask":
                await self._send_read_requests(running, name)
            case "vanish":
                self._remove_manually(name)
            case "pause":
                self._pause(name)
            case "crash":
                self._crash(name)
            case "delete":
                self._taken[name] = await running.delete(name)

    async def _order(
        self,
        running: RunningAgent,
        name: str,
        revision: str,
        desired: pb.DesiredState = pb.DESIRED_STATE_RUNNING,
    ) -> None:
        request = SCENARIOS[self._scenarios[name]](name, self.world.directory, revision)
        request.desired_state = desired
        self._taken[name] = await running.apply(request)

    def _modify_manually(self, name: str) -> None:
        """Change a container manually; the agent repairs it."""
        for one in self.world.docker.running(name):
            one["HostConfig"]["Memory"] = 1 << 30
            one["NetworkSettings"]["Networks"].clear()
            one["Name"] = f"/{name}-renamed"
            self.world.docker.emit_event(one, "update")

    def _remove_manually(self, name: str) -> None:
        """Remove it manually; the agent creates it again."""
        for one in self.world.docker.of(name):
            self.world.docker.remove(one, by_hand=True)
        for uuid, domain in list(self.world.libvirt.domains.items()):
            if domain.name() == name:
                del self.world.libvirt.domains[uuid]

    def _pause(self, name: str) -> None:
        for one in self.world.docker.running(name):
            one["State"]["Status"] = "paused"
            self.world.docker.emit_event(one, "pause")
        for domain in self.world.libvirt.domains.values():
            domain.is_paused = domain.name() == name

    def _lose_networks(self, name: str) -> None:
        networks = self.world.docker.networks
        for network in [one for one in networks if f"-{name}-" in one]:
            del networks[network]

    def _crash(self, name: str) -> None:
        for one in self.world.docker.running(name):
            self.world.docker.stop(one, code=1)
        for domain in self.world.libvirt.domains.values():
            if domain.name() == name:
                domain.crash()

    async def _send_read_requests(self, running: RunningAgent, name: str) -> None:
        """Read-only requests. Each ends with a response or an error."""
        api = running.api
        directory = self.world.directory
        if (log := directory / "vms" / name / "console.log.0").parent.is_dir():
            log.write_bytes(b"booted\n")
        for request in (
            lambda: api.ListVolumes(pb.ListVolumesRequest(), a_context()),
            lambda: api.StreamLogs(pb.LogsRequest(workload_id=name, tail=5), a_context()),
            lambda: api.StreamLogs(pb.LogsRequest(workload_id=name, previous=True), a_context()),
            lambda: self._add_image(running, "other", "raw"),
            lambda: self._add_image(running, "another", "qcow2"),
            lambda: self._add_image(running, "wrong", "raw", sha256="0" * 64),
            lambda: api.ListImages(pb.ListImagesRequest(), a_context()),
            lambda: api.RemoveImage(pb.RemoveImageRequest(name="other"), a_context()),
            lambda: api.GarbageCollect(pb.GarbageCollectRequest(dry_run=True), a_context()),
            lambda: api.HealthCheck(pb.HealthCheckRequest(), a_context()),
        ):
            await _answered(request)

    async def _add_image(
        self, running: RunningAgent, name: str, form: str, *, sha256: str = ""
    ) -> None:
        url = f"file://{self.world.directory}/binds/image.{form}"
        start = pb.AddImageStart(name=name, url=url, sha256=sha256)
        with suppress(AbortedError):
            await running.api.AddImage(_sent(pb.AddImageRequest(start=start)), a_context())

    async def _until_goal(
        self, running: RunningAgent, phase: str, name: str, *, within: float
    ) -> None:
        """A refused request is repeated; a failure that waits for a new order gets one."""
        now = asyncio.get_running_loop().time
        deadline = now() + within
        while not self._is_at_goal(running, phase, name):
            assert not running.serving.done(), f"the agent has ended: {running.serving}"
            assert now() < deadline, (
                f"{name} not at its goal {GOALS[phase]} within {within:g} s: "
                f"{running.status(name)}; {running.errors}"
            )
            status = running.status(name)
            failure = status.failure if status is not None else None
            final = failure is not None and not failure.retryable and phase not in ("crash", "look")
            if final or not self._taken[name]:
                if self.scenario == "machine":  # its image may have failed
                    await self._add_image(running, "disk", "raw")
                if final and phase != "delete":
                    await running.delete(name)
                    await running.until(lambda: running.actual(name) is None, "gone", within=within)
                await self._act(running, "apply" if phase == "ask" else phase, name)
            await asyncio.sleep(1.0)

    def _is_at_goal(self, running: RunningAgent, phase: str, name: str) -> bool:
        entry = running.journal.entries.get(name)  # type: ignore[call-overload]  # ids are text
        if entry is None:
            return GOALS[phase] is None and self._taken[name]
        current = GOALS[phase] is not None and entry.status.actual is GOALS[phase]
        settled = running.journal.open_action(entry) is None
        return bool(self._taken[name] and current and settled)

    def _is_shown(self, running: RunningAgent) -> bool:
        """It is refused, failed or unknown with a message; or the health of the node shows the cause."""
        status = running.status(BAD)
        if not self._taken[BAD] or running.errors or running.agent._node.unavailable():
            return True
        if status is None:
            return False
        is_reported = status.actual in (Actual.FAILED, Actual.UNKNOWN)
        return (is_reported or status.code in (NOT_SETTLED, DRIFTED)) and bool(status.message)

    def _check_removed(self, phase: str, removed: list[str]) -> None:
        """While a call fails, only requested removals happen."""
        removed = [one for one in removed if STRAY not in one]
        assert not [one for one in removed if GOOD in one], removed
        data = [one for one in removed if one.startswith(("volume", "disk"))]
        if phase != "delete":
            assert not data, removed
            marker = self.world.directory / "volumes" / BAD / "plain"
            kept = self.scenario != "container" or phase in ("begin", "apply") or marker.is_dir()
            assert kept, "the directory of a volume is gone"
        if phase in ("look", "ask", "vanish", "pause"):
            assert not removed

    async def _delete(self, running: RunningAgent, name: str) -> None:
        self._taken[name] = await running.delete(name)
        await self._until_goal(running, "delete", name, within=RECOVERED_SECONDS)

    def _check_empty(self) -> None:
        world = self.world
        assert not world.docker.of(BAD), world.docker.of(BAD)
        assert BAD not in {domain.name() for domain in world.libvirt.domains.values()}
        assert not world.programs.mounts, world.programs.mounts
        assert not [image for image in world.programs.rbd_images if BAD in image]
        left = list((world.directory / "volumes").glob(f"**/{BAD}/*"))
        assert not left, left


def _report_bytes(running: RunningAgent) -> int:
    """The report of all workloads to the scheduler."""
    return sum(
        running.api._order_api.status(entry).ByteSize()
        for entry in running.journal.entries.values()
    )


async def _answered(request: Callable[[], Awaitable[Any]]) -> None:
    with suppress(AbortedError):
        async with asyncio.timeout(REQUEST_SECONDS):
            await request()


async def _sent(*messages: Any) -> Any:
    for message in messages:
        yield message
