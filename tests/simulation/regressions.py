"""Bugs that were found by other tests, each as a patch that reintroduces it.

The simulation must find every one of them: `search` patches a copy of the tree and runs seeds on it in two
processes, each with a CPU time limit, until a promise is violated. The same seed must then pass on the
unpatched tree. As a program it prints for each bug the checks that found it and the used share of the limit:
one number per run, each run with other seeds.

    .venv/bin/python tests/simulation/regressions.py [--runs COUNT] [NAME ...]
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2
# Per process: one minute of two cores in total.
CPU_SECONDS_MAX = 60
SEEDS_EACH = 200
_BROKEN = re.compile(r"^seed (\d+): ([^:]+): (.*)$", re.MULTILINE)


class Patch(NamedTuple):
    """Replaces `old`, which must occur exactly once in the file, by `new`."""

    file: str
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            raise LookupError(f"{self.file}: expected once, found {found} times: {self.old!r}")
        return text.replace(self.old, self.new)


class Regression(NamedTuple):
    """`options` are those of `persys sim`."""

    name: str
    patches: tuple[Patch, ...]
    options: tuple[str, ...] = ()


FEDERATION = ("--remote-nodes", "2")
NODE_POOL = ("--node-pool", "3")
SETS = ("--sets", "4")
JOBS = ("--sets", "1", "--jobs", "4")


REGRESSIONS = (
    Regression(
        "an exception in a workload step ends the agent",
        (
            Patch(
                "src/persys/agent/workloads/worker.py",
                "with self._supervisor.contain(STEP, workload_id, failed=errors.append):",
                "if True:",
            ),
            Patch(
                "src/persys/agent/workloads/worker.py",
                "        with self._supervisor.contain(LOOK, workload_id, failed=errors.append):\n"
                "            try:",
                "        if True:\n            try:",
            ),
            Patch(
                "src/persys/agent/workloads/worker.py",
                "return self._supervisor.contain(LOOK, workload_id, failed=lambda _error: None)",
                "return __import__('contextlib').nullcontext()",
            ),
            Patch(
                "src/persys/agent/app.py",
                'frozenset({"journal", "requests"})',
                'frozenset({"journal", "requests", "worker"})',
            ),
        ),
    ),
    Regression(
        "an order is journalled in its caller's task",
        (
            Patch(
                "src/persys/agent/workloads/orders.py",
                "        return await self._owned.finish(\n"
                '            "order.apply",\n'
                "            order.workload_id,\n"
                "            partial(self._apply, order, intent, commit or self._journal.commit),\n"
                "            deadline_seconds=deadline_seconds,\n"
                "        )",
                "        return await self._apply(order, intent, commit or self._journal.commit)",
            ),
            Patch(
                "src/persys/agent/api/service.py",
                'answered = await api.owned.finish("call", method.name, work)',
                "answered = await work()",
            ),
        ),
    ),
    Regression(
        "a new life of an id starts at epoch 1",
        (
            Patch(
                "src/persys/core/reconcile/assign.py",
                "max(situation.next_epoch, used + 1),",
                "used + 1,",
            ),
        ),
    ),
    Regression(
        "freed capacity is reserved before its release is committed",
        (
            Patch(
                "src/persys/scheduler/state/cluster.py",
                "hold = pending if hold in (None, pending) else pending.covering(hold)",
                "hold = pending",
            ),
        ),
    ),
    Regression(
        "a report is not bounded",
        (
            Patch(
                "src/persys/scheduler/membership/heartbeat.py",
                "limited.note(sender, limits_check.trim(heartbeat, VOLATILE))",
                "pass",
            ),
            Patch(
                "src/persys/scheduler/membership/heartbeat.py",
                "trimmed = limits_check.trim(heartbeat)",
                "trimmed = limits_check.Trimmed()",
            ),
            Patch(
                "src/persys/scheduler/dispatch/observations.py",
                "        seen = _bounded(seen)\n",
                "",
            ),
        ),
    ),
    Regression(
        "a removal is one transaction",
        (
            Patch(
                "src/persys/core/nodes.py",
                "DEPENDENTS_PER_STEP_MAX = 64",
                "DEPENDENTS_PER_STEP_MAX = 1_000_000",
            ),
        ),
    ),
    Regression(
        "a node without an answering runtime stays a candidate",
        (
            Patch(
                "src/persys/scheduler/state/cluster.py",
                'silent = frozenset(f"type:{kind}" for kind in unusable)',
                "silent: frozenset[str] = frozenset()",
            ),
        ),
    ),
    Regression(
        "a pull takes its place before it looks for the image",
        (
            Patch(
                "src/persys/agent/workloads/steps.py",
                "            return await self._interruptibly(step, entry, None)\n",
                "            async with self._pull_slots:\n"
                "                return await self._interruptibly(step, entry, None)\n",
            ),
            Patch(
                "src/persys/agent/workloads/steps.py",
                "        self._stack_slots = asyncio.Semaphore(STACKS_MAX)\n",
                "        self._stack_slots = asyncio.Semaphore(STACKS_MAX)\n"
                "        self._pull_slots = asyncio.Semaphore(4)\n",
            ),
        ),
    ),
    Regression(
        "instance ids are not compared",
        (
            Patch(
                "src/persys/core/registration.py",
                "if holder is None or _has_joined_since(registration, holder.node):",
                "if True:",
            ),
            Patch(
                "src/persys/core/registration.py",
                "return instance_id == node.instance_id",
                "return True",
            ),
        ),
    ),
    Regression(
        "a data workload does not wait for its tombstone",
        (
            Patch(
                "src/persys/core/reconcile/assign.py",
                "    if exclusive and being_removed:\n",
                "    if False and being_removed:\n",
            ),
        ),
    ),
    Regression(
        "a conflict does not lead to reading again",
        (
            Patch(
                "src/persys/scheduler/commit/committer.py",
                "                case Conflict() as conflict:\n"
                "                    self._watch.is_stale = True\n",
                "                case Conflict() as conflict:\n",
            ),
        ),
    ),
    Regression(
        "the epoch of a removed copy is ignored by its agent",
        (
            Patch(
                "src/persys/core/agent/admission.py",
                "if known is None and 0 < order.epoch <= deleted_epoch:",
                "if False:",
            ),
        ),
    ),
    Regression(
        "room is not given back after a failed commit",
        (
            Patch(
                "src/persys/scheduler/reconcile/decider.py",
                "        self._cluster.end_pending(workload_id)\n"
                "        self._cluster.update_reservations(workload_id, prepared.nodes)\n"
                "        self._offer_later(prepared.nodes)\n",
                "",
            ),
        ),
    ),
    Regression(
        "an order with an older epoch is accepted",
        (
            Patch(
                "src/persys/core/agent/admission.py",
                "if known is not None and 0 < order.epoch < known.epoch:",
                "if False:",
            ),
        ),
    ),
    Regression(
        "a report of an earlier epoch is accepted as current",
        (
            Patch(
                "src/persys/core/reconcile/situation.py",
                "        and seen.epoch in (0, assignment.epoch)\n",
                "",
            ),
            Patch(
                "src/persys/core/reconcile/situation.py",
                "        and seen.epoch == workload_status.epoch == assignment.epoch\n",
                "",
            ),
        ),
    ),
    Regression(
        "no response of the remote cluster counts as absence",
        (
            Patch(
                "src/persys/federation/remote.py",
                "        except NotFoundError:\n            await self.ensure_normal()\n",
                "        except (NotFoundError, RuntimeUnavailableError):\n",
            ),
        ),
        FEDERATION,
    ),
    Regression(
        "a remote deletion is confirmed before the copy has stopped",
        (
            Patch(
                "src/persys/federation/runtime.py",
                "        return artefact_of(view, order) if view is not None else None\n",
                "        gone = view is None or view.status == Status.DELETING\n"
                "        return None if gone else artefact_of(view, order)\n",
            ),
            Patch(
                "src/persys/federation/runtime.py",
                "        await self._until(order, lambda _view: False)\n",
                "",
            ),
        ),
        FEDERATION,
    ),
    Regression(
        "a workload is offloaded without consent",
        (
            Patch(
                "src/persys/core/placement/tiers.py",
                "    if holds_data(workload) and not rules.offload_data:\n",
                "    if False:\n",
            ),
        ),
        FEDERATION,
    ),
    Regression(
        "the secrets of a deleted workload stay in the remote cluster",
        (
            Patch(
                "src/persys/federation/runtime.py",
                "        if secret.name.startswith(prefix):\n",
                "        if False:\n",
            ),
        ),
        FEDERATION,
    ),
    Regression(
        "a restored remote cluster keeps deleted workloads",
        (
            Patch(
                "src/persys/federation/runtime.py",
                "            for view in await self._remote.workloads()\n",
                "            for view in ()\n",
            ),
        ),
        FEDERATION,
    ),
    Regression(
        "a create call without an answer counts as refused, and untracked machines cost nothing",
        (
            Patch(
                "src/persys/core/nodepools/growth.py",
                "        return len(self.machines) + len(self.untracked)\n",
                "        return len(self.machines)\n",
            ),
            Patch(
                "src/persys/core/nodepools/growth.py",
                "        return known + highest * len(self.untracked)\n",
                "        return known\n",
            ),
            Patch(
                "src/persys/scheduler/nodepools/provision.py",
                "        except (ProviderRefusedError, InvalidError) as err:\n",
                "        except (ProviderRefusedError, ProviderUnavailableError, InvalidError) as err:\n",
            ),
        ),
        NODE_POOL,
    ),
    Regression(
        "a machine that never boots is kept",
        (
            Patch(
                "src/persys/core/nodepools/lifecycle.py",
                "    if now - machine.created_at >= pool.provision_deadline:\n",
                "    if False:\n",
            ),
        ),
        NODE_POOL,
    ),
    Regression(
        "a rollout does not wait for the gates of its members",
        (
            Patch(
                "src/persys/core/sets/gate.py",
                "    return _FAILED if deadline <= now else Gate(GateState.WAITING, deadline)\n",
                "    return _PASSED\n",
            ),
        ),
        SETS,
    ),
    Regression(
        "an in-place rollout does not count the healthy members",
        (
            Patch(
                "src/persys/core/sets/updates.py",
                "            if spare <= 0:\n                break\n",
                "",
            ),
        ),
        SETS,
    ),
    Regression(
        "the old member is deleted before the new one has passed its gate",
        (
            Patch(
                "src/persys/core/sets/replicas.py",
                "    if slot.has_passed:\n        return True\n",
                "    if True:\n        return True\n",
            ),
        ),
        SETS,
    ),
    Regression(
        "a revision is stable when its rollout starts",
        (
            Patch(
                "src/persys/core/sets/changes.py",
                "    return replace(record, target=number, rollout=rollout, updated_at=now)\n",
                "    return replace(record, target=number, stable=number, rollout=rollout, updated_at=now)\n",
            ),
        ),
        SETS,
    ),
    Regression(
        "a set returns to the revision that failed after a rollback",
        (
            Patch(
                "src/persys/core/sets/phases.py",
                "    return replace(record, rollout=rollout, stable=stable, updated_at=now)\n",
                "    again = rollout.rolled_back_from or record.target\n"
                "    return replace(record, rollout=rollout, target=again, stable=stable, updated_at=now)\n",
            ),
        ),
        SETS,
    ),
    Regression(
        "a rollout waits for a member that fails without a limit",
        (
            Patch(
                "src/persys/core/sets/gate.py",
                "    return fails and good_at is not None and good_at >= judged_from\n",
                "    return False\n",
            ),
            Patch(
                "src/persys/core/sets/gate.py",
                "    return _FAILED if deadline <= now else Gate(GateState.WAITING, deadline)\n",
                "    return Gate(GateState.WAITING, None)\n",
            ),
        ),
        SETS,
    ),
    Regression(
        "an occurrence is noted after its run is stored",
        (
            Patch(
                "src/persys/scheduler/jobs/controller.py",
                "            job=found.job,\n"
                "            runs=[found.run] if found.run is not None else [],\n",
                "            runs=[found.run] if found.run is not None else [],\n",
            ),
            Patch(
                "src/persys/scheduler/jobs/controller.py",
                '        log.info(\n            "job.occurrence_settled",\n',
                "        await self._jobs.commit(job_id, job=found.job, now=now)\n"
                '        log.info(\n            "job.occurrence_settled",\n',
            ),
        ),
        JOBS,
    ),
    Regression(
        "an attempt that was removed is created again",
        (
            Patch(
                "src/persys/core/jobs/run.py",
                '    return Failed("its workload was removed") if member.created else None\n',
                "    return None\n",
            ),
        ),
        JOBS,
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The invariant that was broken, by which seed, and the CPU seconds of all processes until then."""

    promise: str
    text: str
    seed: int
    cpu_seconds: float


@contextmanager
def planted(regression: Regression) -> Iterator[Path]:
    """The sources of this program with the fault in them."""
    with tempfile.TemporaryDirectory(prefix="regression-") as name:
        tree = Path(name)
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for patch in regression.patches:
            path = tree / patch.file
            path.write_text(patch.applied_to(path.read_text()))
        yield tree / "src"


class UnplantedError(Exception):
    """A seed violates a promise on the unpatched tree too, so it found another bug."""


def search(regression: Regression, *, first_seed: int = 1) -> Found | None:
    """None: no seed found it before every process had used its CPU time."""
    found = _search(regression, first_seed)
    if found is not None:
        seeds = range(found.seed, found.seed + 1)
        valid = _ended(_start(ROOT / "src", seeds, regression.options))
        if _BROKEN.search(valid.output):
            raise UnplantedError(valid.output)
    return found


def _search(regression: Regression, first_seed: int) -> Found | None:
    with planted(regression) as sources, ThreadPoolExecutor(PROCESSES) as pool:
        begins = [first_seed + number * SEEDS_EACH for number in range(PROCESSES)]
        spans = [range(begin, begin + SEEDS_EACH) for begin in begins]
        processes = [_start(sources, seeds, regression.options) for seeds in spans]
        running = [pool.submit(_ended, process) for process in processes]
        for ended in as_completed(running):
            if _BROKEN.search(ended.result().output):
                break
        for process in processes:
            process.kill()
        ends = [ended.result() for ended in running]
    cpu_seconds = sum(end.cpu_seconds for end in ends)
    for end in ends:
        if broken := _BROKEN.search(end.output):
            return Found(broken[2], broken[3], int(broken[1]), cpu_seconds)
    return None


class _End(NamedTuple):
    output: str
    cpu_seconds: float


def _start(sources: Path, seeds: range, options: tuple[str, ...]) -> subprocess.Popen[str]:
    span = f"{seeds.start}..{seeds.stop - 1}"
    return subprocess.Popen(
        [sys.executable, "-m", "persys.cli.persys", "sim", "--seeds", span, "--first", *options],
        cwd=sources,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(sources)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_limit_cpu,
    )


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))


def _ended(process: subprocess.Popen[str]) -> _End:
    assert process.stdout is not None
    with process.stdout as stream:
        output = stream.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return _End(output, used.ru_utime + used.ru_stime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("names", nargs="*", help="default: all")
    options = parser.parse_args()
    chosen = [one for one in REGRESSIONS if not options.names or one.name in options.names]
    missed = 0
    for regression in chosen:
        starts = [1 + run * PROCESSES * SEEDS_EACH for run in range(options.runs)]
        found = [search(regression, first_seed=start) for start in starts]
        missed += None in found
        show(regression, found)
    return 1 if missed else 0


def show(regression: Regression, found: Sequence[Found | None]) -> None:
    limit = PROCESSES * CPU_SECONDS_MAX
    shares = " ".join(f"{one.cpu_seconds / limit:.2f}" if one else "missed" for one in found)
    hits = [one for one in found if one is not None]
    print(f"{regression.name:<62} {shares}", flush=True)
    for one in hits:
        print(f"    seed {one.seed}: {one.promise}: {one.text[:150]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
