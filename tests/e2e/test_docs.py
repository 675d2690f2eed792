"""Every command that the documents tell to type is typed, on one cluster that `persys up` made."""

from collections.abc import Iterator

import pytest

from e2e.docs_runner.blocks import blocks_of, documents
from e2e.docs_runner.desk import Desk, a_desk

TYPED = [name for name in documents() if any(block.is_run for block in blocks_of(name))]


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with a_desk() as made:
        yield made


@pytest.mark.parametrize("document", TYPED)
def test_what_the_document_tells_to_type_works(desk: Desk, document: str) -> None:
    trouble = desk.type([block for block in blocks_of(document) if block.is_run])

    assert trouble == "", trouble
