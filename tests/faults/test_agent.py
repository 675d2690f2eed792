"""A fault in any call below the ports of the agent affects one workload, and only while it lasts.

The cases are all call sites of the agent times all kinds of faults. A run of the lifecycle of each kind of
workload without faults finds where each site is reached. A site that is never reached fails a test, unless it
is listed with the test that covers it. A sample runs each time, all cases in the full suite.
"""

from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from faults.injection import KINDS
from faults.lifecycle import Lifecycle, prepare
from faults.node import World, run_in
from faults.scenarios import SCENARIOS
from faults.sites import TRANSPARENT, Site, Transparent, all_sites, sites_of
from faults.unreached import ELSEWHERE, TRIGGERS

SAMPLE = 60


class Place(NamedTuple):
    """Where a call site is first reached."""

    scenario: str
    phase: str


class Case(NamedTuple):
    site: str
    kind: str

    def __str__(self) -> str:
        return f"{self.site}-{self.kind}"


ALL = [
    Case(str(site), kind) for site in all_sites() if str(site) not in ELSEWHERE for kind in KINDS
]
# These have found defects: they always run.
KEPT = [
    Case("docker:runtimes/bind_guard:BindGuard._replaced#2", "oversized"),
    Case("docker:runtimes/docker/exec_logs:DockerAccess.frames#1", "hang"),
    Case("paths:images/sources:_read#1", "oversized"),
    Case("paths:runtimes/vm/console:_all#2", "hang"),
    Case("paths:runtimes/vm/console:_all#3", "oversized"),
    Case("programs:runtimes/compose/cli:ComposeCommands.create#1", "oversized"),
    Case("programs:runtimes/compose/cli:ComposeCommands.recreate#1", "hang"),
    Case("programs:volumes/filesystems:Mounts.unmount#1", "oversized"),
]
CHOSEN = sorted({*KEPT, *Random("faults of the agent").sample(ALL, SAMPLE)})
places: dict[str, Place] = {}


@cache
def reached_in(scenario: str, directory: Path) -> dict[str, str]:
    world = World(directory)
    prepare(world)
    return run_in(world, Lifecycle(world, scenario).dry_run)


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    """All call sites that a lifecycle without faults reaches."""
    if not places:
        for scenario in SCENARIOS:
            found = reached_in(scenario, tmp_path_factory.mktemp(scenario))
            for site, phase in found.items():
                places.setdefault(site, Place(scenario, phase))
    return places


def place_of(site: str, reached: dict[str, Place]) -> Place:
    return reached[TRIGGERS[site].site if site in TRIGGERS else site]


def survive(case: Case, place: Place, directory: Path) -> None:
    world = World(directory)
    prepare(world)
    lifecycle = Lifecycle(world, place.scenario)
    run_in(world, lambda: lifecycle.survive(case.site, case.kind, place.phase))


def test_every_call_site_is_reached_or_listed(reached: dict[str, Place]) -> None:
    listed = ELSEWHERE.keys() | TRIGGERS.keys()
    missing = {str(site) for site in all_sites()} - reached.keys() - listed

    assert not missing, "add what reaches these calls to a scenario, or the test that covers them"


def test_no_reached_call_site_is_listed(reached: dict[str, Place]) -> None:
    listed = ELSEWHERE.keys() | TRIGGERS.keys()
    assert listed <= {str(site) for site in all_sites()}
    assert listed & reached.keys() == set()


@pytest.mark.parametrize("name", sorted(set(ELSEWHERE.values())))
def test_a_listed_test_exists(name: str) -> None:
    file, _, function = name.partition("::")

    assert f"def {function}(" in (Path(__file__).parents[2] / file).read_text()


@pytest.mark.parametrize("transparent", TRANSPARENT, ids=lambda each: each.function)
def test_a_transparent_function_has_callers(transparent: Transparent) -> None:
    callers: list[Site] = sites_of(transparent.callee.driver)
    assert any(site.callee == transparent.callee.name for site in callers)


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_a_fault_below_a_port_affects_one_workload(
    case: Case, reached: dict[str, Place], tmp_path: Path
) -> None:
    survive(case, place_of(case.site, reached), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_fault_below_a_port_affects_one_workload(
    case: Case, reached: dict[str, Place], tmp_path: Path
) -> None:
    survive(case, place_of(case.site, reached), tmp_path)
