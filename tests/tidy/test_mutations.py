"""The list of mutations and its table are up to date with the code."""

import json
from pathlib import Path

import pytest

from mutations.mutation import Mutation
from mutations.results_table import recorded

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = [
    Mutation(**entry) for entry in json.loads((ROOT / "tests/mutations/list.json").read_text())
]
DOCUMENT = (ROOT / "docs/explanation/mutations.md").read_text("utf-8")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.id))
def test_a_listed_mutation_applies_to_the_code(mutation: Mutation) -> None:
    source = (ROOT / mutation.file).read_text("utf-8")

    assert mutation.applied_to(source) not in (None, source)


def test_the_table_names_a_test_that_exists_for_at_least_55_mutations() -> None:
    found = recorded(DOCUMENT)

    assert len(found) >= 55
    for result in found.values():
        path, _, name = result.test.partition("::")
        if name:
            function = name.partition("[")[0]
            assert f"def {function}(" in (ROOT / path).read_text("utf-8"), result.test
