"""docs/reference: the schema and the reference of spec files are those that the code generates."""

from pathlib import Path

from persys.wire.schema import json_schema, reference


def test_the_schema_is_current(root: Path) -> None:
    written = (root / "docs" / "reference" / "workload.schema.json").read_text("utf-8")

    assert written == json_schema.text(), "run `make generate`"


def test_the_reference_is_current(documents: dict[str, str]) -> None:
    assert documents["docs/reference/spec.md"] == reference.text(), "run `make generate`"
