"""Runs the steps of a plan that are not done yet: all hosts of a phase at the same time.

After a failed step its host stops; the other hosts complete the phase, and no later phase starts. The next
run continues: it skips what is recorded on a host and still in place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

from persys.cli.framework.live import LiveState, Update
from persys.cli.hosts.inventory import Host, Member
from persys.cli.hosts.plan import Output, Phase, Step
from persys.cli.hosts.scripts import PRELUDE
from persys.cli.hosts.ssh import HostError, Result, Shell
from persys.infra.failpoints import failpoint

Failures = dict[str, str]  # by host
STEP_DONE = "hosts.step"  # a failpoint: after an action, before the next one


class Outcome(NamedTuple):
    failures: Failures
    changed: Mapping[str, int]  # the number of steps that ran, by host


class Progress:
    """One line per host. Called by several threads."""

    def __init__(self, update: Update, hosts: Iterable[str]) -> None:
        self._update = update
        self._states = dict.fromkeys(hosts, LiveState("waiting"))
        self._lock = Lock()

    def show(self, host: str, state: str, detail: str = "") -> None:
        with self._lock:
            self._states[host] = LiveState(state, detail)
            self._update(self._states)


class Execution:
    def __init__(self, shell: Shell, progress: Progress) -> None:
        self._shell = shell
        self._progress = progress
        self._changed: dict[str, int] = {}

    def run(self, plan: Sequence[Phase]) -> Outcome:
        for phase in plan:
            failures = self._run_phase(phase)
            if failures:
                return Outcome(failures, self._changed)
        for name in {step.member.name for phase in plan for step in phase}:
            count = self._changed.get(name, 0)
            self._progress.show(name, "ready", f"{count} steps run" if count else "unchanged")
        return Outcome({}, self._changed)

    def _run_phase(self, phase: Phase) -> Failures:
        by_host: dict[Member, list[Step]] = {}
        for step in phase:
            by_host.setdefault(step.member, []).append(step)
        with ThreadPoolExecutor(len(by_host)) as pool:
            ended = pool.map(self._run_host, by_host.values())
        return {member.name: why for member, why in zip(by_host, ended, strict=True) if why}

    def _run_host(self, steps: Sequence[Step]) -> str:
        """The error, or ""."""
        for step in steps:
            name = step.member.name
            try:
                if is_done(self._shell, step):
                    continue
                self._progress.show(name, step.title)
                self._perform(step)
            except HostError as err:
                self._progress.show(name, step.title, "failed")
                return f"{step.title}: {err}"
            self._changed[name] = self._changed.get(name, 0) + 1
            failpoint(STEP_DONE, step.name)
        return ""

    def _perform(self, step: Step) -> None:
        given = step.given
        if isinstance(given, Output):
            data = _checked(
                self._shell.run(given.member.host, PRELUDE + given.script, root=True),
                f"on {given.member.name}: ",
            ).output
            result = self._shell.run(step.member.host, step.action_script, root=True, data=data)
        else:
            result = self._shell.run(
                step.member.host, step.action_script, root=True, data=given or b""
            )
        _checked(result)


def is_done(shell: Shell, step: Step) -> bool:
    return shell.run(step.member.host, step.check_script, root=True).code == 0


def todo(shell: Shell, plan: Sequence[Phase]) -> list[tuple[Step, bool]]:
    """Every step, and whether it is done. Changes nothing."""
    steps = [step for phase in plan for step in phase]
    hosts: dict[Host, list[Step]] = {}
    for step in steps:
        hosts.setdefault(step.member.host, []).append(step)

    def check(mine: Sequence[Step]) -> list[tuple[Step, bool]]:
        return [(step, is_done(shell, step)) for step in mine]

    with ThreadPoolExecutor(len(hosts)) as pool:
        done = [pair for pairs in pool.map(check, hosts.values()) for pair in pairs]
    order = {id(step): number for number, step in enumerate(steps)}
    return sorted(done, key=lambda pair: order[id(pair[0])])


def on_all(hosts: Sequence[Host], work: Callable[[Host], Result]) -> dict[Host, Result | HostError]:
    """Run on all hosts at the same time; a host that fails does not affect the others."""

    def attempt(host: Host) -> Result | HostError:
        try:
            return work(host)
        except HostError as err:
            return err

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(attempt, hosts), strict=True))


def _checked(result: Result, where: str = "") -> Result:
    if result.code != 0:
        raise HostError(f"{where}{result.errors or f'exit code {result.code}'}")
    return result
