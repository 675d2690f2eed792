"""Every planted fault still applies to the sources, and the simulation finds it."""

from pathlib import Path

import pytest

from simulation.regressions import REGRESSIONS, ROOT, Regression, search


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda one: one.name)
def test_a_planted_fault_applies_to_the_sources(regression: Regression) -> None:
    texts: dict[Path, str] = {}
    for patch in regression.patches:
        path = ROOT / patch.file
        texts[path] = patch.applied_to(texts.get(path, path.read_text()))
    for path, text in texts.items():
        compile(text, str(path), "exec")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda one: one.name)
def test_the_simulation_finds_a_planted_fault(regression: Regression) -> None:
    assert search(regression) is not None
