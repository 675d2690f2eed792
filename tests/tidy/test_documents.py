"""Documents that cannot go stale: variables, defaults, extension numbers, links and file names."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FileDescriptor

from persys.cli.framework.aliases import rewrite
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.infra.settings import load
from persys.scheduler.state.records import RECORDS, SINGLE_KEYS
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

VARIABLE = re.compile(r"\b(?:PERSYS|SCHEDULER|ETCD)_[A-Z0-9_]*[A-Z0-9]\b")
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)#([^)\s]+)\)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
NAMED_FILE = re.compile(r"`([\w./-]+\.py)`")
COMMAND = re.compile(r"persysctl ([a-z]+)(?: ([a-z-]+))?(?=[\s`]|$)")
EXTENSION_MIN = 100
PROTOS: dict[str, FileDescriptor] = {
    "control": control_pb2.DESCRIPTOR,
    "agent": agent_pb2.DESCRIPTOR,
}


def settings_classes(sources: dict[str, str]) -> dict[str, type[Any]]:
    """The settings class of each process, by the process's name."""
    found: dict[str, type[Any]] = {}
    for path in sources:
        if path.count("/") == 1 and path.endswith("/settings.py") and path != "infra/settings.py":
            module = importlib.import_module("persys." + path.removesuffix(".py").replace("/", "."))
            for value in vars(module).values():
                if isinstance(value, type) and has_variables(value):
                    found[path.partition("/")[0]] = value
    return found


def has_variables(cls: type[Any]) -> bool:
    return dataclasses.is_dataclass(cls) and all(
        "env" in field.metadata for field in dataclasses.fields(cls)
    )


def shown_defaults(cls: type[Any]) -> dict[str, str]:
    """For each variable its default as --print-config shows it."""
    lines = load(cls, [], {}, program="any").describe().splitlines()
    shown = {line.partition(" = ")[0]: line.partition(" = ")[2].split("  # ")[0] for line in lines}
    return {
        variable: shown[field.name]
        for field in dataclasses.fields(cls)
        for variable in field.metadata["env"]
    }


def words_in_code(trees: dict[str, ast.Module], folders: tuple[str, ...]) -> set[str]:
    """Variables that code names itself, as the command line and the failpoints do."""
    return {
        node.value
        for path, tree in trees.items()
        if path.startswith(folders)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and VARIABLE.fullmatch(node.value)
    }


def test_each_process_has_its_settings_class(sources: dict[str, str]) -> None:
    assert settings_classes(sources).keys() == {
        "scheduler",
        "agent",
        "ca",
        "gateway",
        "federation",
    }


def test_every_variable_the_documents_name_exists(
    documents: dict[str, str], sources: dict[str, str], trees: dict[str, ast.Module]
) -> None:
    known = words_in_code(trees, ("cli/", "infra/", "gateway/", "model/"))
    for cls in settings_classes(sources).values():
        known |= shown_defaults(cls).keys()

    unknown = {
        (path, variable)
        for path, text in documents.items()
        for variable in VARIABLE.findall(text)
        if variable not in known
    }
    assert unknown == set()


@pytest.mark.parametrize("process", ["scheduler", "agent", "ca", "gateway", "federation"])
def test_every_variable_is_in_its_table_with_its_default(
    process: str, documents: dict[str, str], sources: dict[str, str]
) -> None:
    section = part_of(documents["docs/reference/settings.md"], f"Variables of the {process}")
    reported = {
        name: cells[1].strip("`")
        for cells in rows_of(section)
        for name in re.findall(r"`(\w+)`", cells[0])
    }

    real = shown_defaults(settings_classes(sources)[process])
    if process == "agent":
        real["PERSYS_VERSION"] = "version of the package"  # changes with each commit
    assert reported == {name: default or "none" for name, default in real.items()}


def test_every_variable_the_command_line_reads_is_documented(
    documents: dict[str, str], trees: dict[str, ast.Module]
) -> None:
    documented = set(VARIABLE.findall(documents["docs/reference/settings.md"]))

    assert words_in_code(trees, ("cli/",)) <= documented


def test_every_record_type_is_in_its_table_as_the_scheduler_has_it(
    documents: dict[str, str],
) -> None:
    reported = {
        cells[0].strip("`"): tuple(cells[1:])
        for cells in rows_of(
            part_of(documents["docs/explanation/architecture.md"], "Records and keys")
        )
    }

    assert reported == {
        **{
            kind.key_form: (
                kind.content,
                kind.written_when,
                "yes" if kind.in_snapshot else "no",
                kind.unreadable.value,
            )
            for kind in RECORDS
        },
        **{one.key: (one.content, one.written_when, "no", "-") for one in SINGLE_KEYS},
    }


def test_every_extension_field_is_documented_and_nothing_else(documents: dict[str, str]) -> None:
    reported = {
        (process, cells[0].strip("`"), cells[1], cells[2].strip("`"))
        for process in PROTOS
        for cells in rows_of(
            part_of(documents["docs/reference/contracts.md"], f"Added to {process}.proto")
        )
    }

    assert reported == set(extensions())


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_the_document_is_there(documents: dict[str, str], name: str) -> None:
    assert documents[name].startswith("# ")


def test_every_link_leads_somewhere(root: Path, documents: dict[str, str]) -> None:
    dead = [
        f"{path}: {target}"
        for path, text in documents.items()
        for target in LINK.findall(text)
        if not (root / path).parent.joinpath(target).exists()
    ]

    assert dead == []


def test_every_anchor_is_a_heading(root: Path, documents: dict[str, str]) -> None:
    missing = [
        f"{path}: {target}#{anchor}"
        for path, text in documents.items()
        for target, anchor in ANCHOR.findall(text)
        if anchor not in anchors_of(documents[resolved(path, target, root)])
    ]

    assert missing == []


def resolved(path: str, target: str, root: Path) -> str:
    """The path of a linked document in the project."""
    if not target:
        return path
    return (root / path).parent.joinpath(target).resolve().relative_to(root.resolve()).as_posix()


def anchors_of(text: str) -> set[str]:
    """The anchors of all headings, as code hosting sites and MkDocs create them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_file_the_documents_name_exists(root: Path, documents: dict[str, str]) -> None:
    missing = [
        f"{path}: {name}"
        for path, text in documents.items()
        if path != "CHANGELOG.md"
        for name in NAMED_FILE.findall(text)
        if not any((root / folder / name).exists() for folder in (".", "src/persys"))
    ]

    assert missing == []


def test_every_command_the_documents_name_exists(documents: dict[str, str]) -> None:
    known = {(group.name, command.name) for group in GROUPS for command in group.commands}
    # What follows a command without a group is its argument.
    single = {command.name for command in SINGLES}

    reported = {
        tuple(words[:2])
        for path, text in documents.items()
        for found in COMMAND.findall(text)
        if (words := rewrite([word for word in found if word]))[0] not in single
    }
    assert reported <= known


def part_of(text: str, heading: str) -> str:
    """The part of a document under a heading, up to the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"no heading {heading!r}"
    return found[1]


def rows_of(section: str) -> list[list[str]]:
    """The cells of each table row below the heads."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows[1:] if set(row[0]) - set("-: ")]


def extensions() -> Iterator[tuple[str, str, str, str]]:
    for process, proto in PROTOS.items():
        for message in proto.message_types_by_name.values():
            yield from ((process, *entry) for entry in extensions_of(message))


def extensions_of(message: Descriptor) -> Iterator[tuple[str, str, str]]:
    for field in message.fields:
        if field.number >= EXTENSION_MIN:
            yield message.name, str(field.number), field.name


def test_every_promise_that_holds_now_is_the_name_of_a_test(
    documents: dict[str, str], root: Path
) -> None:
    promised = set(re.findall(r"^(\d+)\. (?!\*Later)", documents["README.md"], re.MULTILINE))
    named = {
        number
        for path in (root / "tests").rglob("test_*.py")
        for number in re.findall(r"def test_promise_(\d+)_", path.read_text("utf-8"))
    }

    assert promised
    assert promised <= named
