"""Pairings of schedulers, agents and gateways, stopped after the tests."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from e2e import vms
from root_ca import Root
from third_party.gateway_pairings import OurGateway, TheirGateway
from third_party.pairings import OurAgent, OurScheduler

Opened = TypeVar("Opened", OurScheduler, OurAgent, OurGateway | TheirGateway)
LOG_CHARACTERS_SHOWN = 6_000
_open: list[OurScheduler | OurAgent | OurGateway] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the logs of the programs that ran."""
    report = yield
    if report.failed:
        for pairing in _open:
            for name, log in pairing.logs().items():
                report.sections.append((f"log of {name}", log[-LOG_CHARACTERS_SHOWN:]))
    return report


@pytest.fixture(scope="module", params=[pytest.param("plain", marks=pytest.mark.full), "mtls"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Root | None:
    """None: all connections use plain text."""
    if request.param == "plain":
        return None
    return Root(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pairing(root: Root | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurScheduler]:
    """One for all tests of a module. Every test leaves it running."""
    created = OurScheduler(tmp_path_factory.mktemp("pairing"), root=root)
    yield from _opened(created)


@pytest.fixture(scope="module")
def plain_pairing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurScheduler]:
    """In plain text, for tests that do not depend on TLS."""
    yield from _opened(OurScheduler(tmp_path_factory.mktemp("pairing")))


@pytest.fixture
def new_pairing(tmp_path: Path) -> Iterator[Callable[..., OurScheduler]]:
    """Creates pairings for one test."""
    created: list[OurScheduler] = []

    def make(**how: Any) -> OurScheduler:
        folder = tmp_path / f"pairing-{len(created)}"
        folder.mkdir()
        created.append(OurScheduler(folder, **how))
        _open.append(created[-1])
        created[-1].start()
        return created[-1]

    try:
        yield make
    finally:
        for one in created:
            _open.remove(one)
            one.close()


@pytest.fixture(scope="module")
def our_agent(
    root: Root | None, tmp_path_factory: pytest.TempPathFactory, demo_image: str
) -> Iterator[OurAgent]:
    """A third-party scheduler with our agent, for all tests of a module."""
    with vms.vm_directory() as vm_directory:
        folder = tmp_path_factory.mktemp("pairing")
        yield from _opened(OurAgent(folder, vm_directory, demo_image, root=root))


@pytest.fixture(scope="module", params=["theirs", "ours"])
def gateway_pairing(
    request: pytest.FixtureRequest, root: Root | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OurGateway | TheirGateway]:
    """`theirs`: in front of our scheduler. `ours`: in front of a third-party scheduler."""
    kind = TheirGateway if request.param == "theirs" else OurGateway
    created: OurGateway | TheirGateway = kind(tmp_path_factory.mktemp("pairing"), root=root)
    yield from _opened(created)


def _opened(made: Opened) -> Iterator[Opened]:
    _open.append(made)
    try:
        made.start()
        yield made
    finally:
        _open.remove(made)
        made.close()
