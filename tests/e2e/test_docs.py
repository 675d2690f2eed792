"""Runs every command of the documents on one cluster, created by `persys up`."""

from collections.abc import Iterator

import pytest

from e2e.docs_runner.blocks import FULL, blocks_of, documents
from e2e.docs_runner.environment import DEADLINE_SECONDS, DocsEnvironment, a_docs_environment

FULL_SECONDS = 1200  # for an emulated VM on a busy host
DOCUMENTS = [
    pytest.param(name, marks=(pytest.mark.full, pytest.mark.timeout(FULL_SECONDS + 300)))
    if name in FULL
    else pytest.param(name)
    for name in documents()
    if any(block.is_run for block in blocks_of(name))
]


@pytest.fixture(scope="module")
def environment() -> Iterator[DocsEnvironment]:
    with a_docs_environment() as created:
        yield created


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_work(environment: DocsEnvironment, document: str) -> None:
    trouble = environment.run_blocks(
        [block for block in blocks_of(document) if block.is_run],
        within=FULL_SECONDS if document in FULL else DEADLINE_SECONDS,
    )

    assert trouble == "", trouble
