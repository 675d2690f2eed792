"""persysctl schema: the JSON schema of spec files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema

if TYPE_CHECKING:
    from shells.cli.conftest import Run


def test_the_printed_schema_validates_a_spec_file(run: Run) -> None:
    result = run("schema")

    assert result.code == 0
    schema = json.loads(result.out)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate({"id": "web", "container": {"image": "nginx"}}, schema)
