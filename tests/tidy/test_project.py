"""Rules about the project around the code: requirements, scripts, generated files, host paths."""

import importlib
import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

INDEX = re.compile(r"https?://|--(extra-)?index-url|--find-links|--trusted-host|^-[if]\s", re.M)
HOST_PATH = re.compile(r"(?<![\w.~*])/(work|root|home|Users)\b(?!-)")
# The rule itself has to name what it forbids.
ABOUT_THE_RULE = {"tests/tidy/test_project.py", "tests/tidy/test_house_rules.py"}
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
SCRIPTS = PROJECT["project"]["scripts"]


def test_requirements_name_no_package_index(root: Path) -> None:
    for path in sorted((root / "requirements").iterdir()):
        assert not INDEX.search(path.read_text("utf-8")), path.name


def test_every_pinned_requirement_has_its_hash(root: Path) -> None:
    for path in sorted((root / "requirements").glob("*.txt")):
        for block in re.split(r"\n(?=\S)", path.read_text("utf-8")):
            if block.strip() and not block.startswith("#"):
                assert "==" in block, f"{path.name}: {block}"
                assert "--hash=sha256:" in block, f"{path.name}: {block}"


def test_every_dependency_is_bounded_around_its_pinned_version(root: Path) -> None:
    """The lower bound is tested by `make test-lowest`, the pinned version by all other tests."""
    extras = PROJECT["project"]["optional-dependencies"]
    bounded = (extras[name] for name in extras.keys() - {"libvirt"})
    lines = [*PROJECT["project"]["dependencies"], *itertools.chain(*bounded)]
    text = (root / "requirements" / "dev.txt").read_text("utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))

    for line in lines:
        wanted = Requirement(line)
        assert sorted(one.operator for one in wanted.specifier) == ["<", ">="], line
        if wanted.name in pinned:
            assert wanted.specifier.contains(pinned[wanted.name]), line


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_console_script_resolves(script: str) -> None:
    module, _, function = SCRIPTS[script].partition(":")

    assert callable(getattr(importlib.import_module(module), function))


def test_every_python_script_is_linted_and_type_checked(root: Path) -> None:
    python = re.compile(r'(#!.*python3?\n)?"""')
    paths = [path for path in sorted((root / "scripts").rglob("*")) if path.is_file()]
    scripts = {
        path.relative_to(root).as_posix()
        for path in paths
        if "__pycache__" not in path.parts and python.match(path.read_text("utf-8"))
    }
    text = (root / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (linted,) = re.findall(r"^SCRIPTS := (.+)$", text, re.M)

    assert scripts
    assert set(linted.split()) == scripts
    assert scripts <= set(PROJECT["tool"]["mypy"]["files"])


def test_everything_the_suite_deselects_has_a_target_and_a_ci_step(root: Path) -> None:
    options = PROJECT["tool"]["pytest"]["ini_options"]["addopts"]

    assert re.findall(r"--ignore=\S+|-m '[^']*'", options) == ["-m 'not full'"]
    assert "scripts/test --full\n" in (root / "Makefile").read_text("utf-8")
    assert "make test\n" in (root / ".ci" / "run").read_text("utf-8")
    assert "make test-full\n" in (root / ".ci" / "full").read_text("utf-8")


def test_the_newest_python_is_tested_in_the_second_ci_step(root: Path) -> None:
    recipe = (
        (root / "Makefile").read_text("utf-8").partition("\ntest-full:")[2].partition("\n\n")[0]
    )

    assert "\t@scripts/test-newest" in recipe


@pytest.mark.parametrize("target", ["lint", "test"])
def test_the_make_target_exists_and_is_phony(root: Path, target: str) -> None:
    text = (root / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.M)

    assert re.search(rf"^{target}:", text, re.M)
    assert target in phony.split()


def test_the_licence_is_mit(root: Path) -> None:
    assert (root / "LICENSE").read_text("utf-8").startswith("MIT License\n")


def test_no_file_contains_a_path_of_the_development_host(texts: dict[str, str]) -> None:
    breaches = [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts.items()
        if path not in ABOUT_THE_RULE
        for number, line in enumerate(text.splitlines(), 1)
        if HOST_PATH.search(line)
    ]

    assert breaches == []


def test_the_generated_code_matches_the_protos(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [root / "scripts" / "generate", tmp_path],
        env=os.environ | {"PYTHON": sys.executable},
        timeout=120,
        check=True,
    )

    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.py*")}
    assert len(fresh) == 9
    for path, content in fresh.items():
        assert (root / "src" / path).read_bytes() == content, f"run `make generate`: {path}"


TARGETS = (
    "build",
    "build-linux",
    "deb",
    "deps",
    "dev-certs",
    "docker-build",
    "docker-push",
    "fmt",
    "lint",
    "proto",
    "release",
    "test",
)


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_has_the_target(root: Path, target: str) -> None:
    """Also if a file or folder has its name, as proto has."""
    shown = subprocess.run(
        ["make", "--dry-run", target], cwd=root, capture_output=True, text=True, check=True
    )

    assert shown.stdout.splitlines()
    assert "is up to date" not in shown.stdout
