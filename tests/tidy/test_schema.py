"""docs/reference: the schema and the reference of spec files are those that the code generates."""

from importlib.resources import files
from pathlib import Path

from persys.wire.schema import json_schema, reference


def test_the_schema_is_current(root: Path) -> None:
    written = (root / "docs" / "reference" / "workload.schema.json").read_text("utf-8")

    assert written == json_schema.text(), "run `make generate`"


def test_the_reference_is_current(documents: dict[str, str]) -> None:
    examples = {
        file.name: file.read_text("utf-8")
        for file in files("persys.examples").iterdir()
        if file.name.endswith(".yaml")
    }

    shown = {name for names in reference.EXAMPLES.values() for name in names}
    assert shown == examples.keys()
    assert documents["docs/reference/spec.md"] == reference.text(examples), "run `make generate`"
