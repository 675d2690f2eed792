"""Rules over the dashboard: text never becomes markup, nothing comes from elsewhere, files are small."""

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "persys" / "gateway" / "dashboard" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
# Ways in which text becomes markup or code, and what the rules for scripts would refuse anyway.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc"
)
ELSEWHERE = re.compile(r"(https?:)?//[a-z]", re.IGNORECASE)
NAMESPACES = ("http://www.w3.org/2000/svg",)
LINES_MAX = 250
BYTES_MAX = 120_000


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_text(path: Path) -> None:
    assert MARKUP.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_is_loaded_from_another_host(path: Path) -> None:
    text = path.read_text("utf-8")
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")

    assert ELSEWHERE.findall(text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_script_starts_with_a_description_and_is_short(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()

    assert lines[0].startswith("// ")
    assert len(lines) <= LINES_MAX


def test_the_whole_is_light_enough_for_a_phone() -> None:
    assert sum(path.stat().st_size for path in FILES) < BYTES_MAX


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text("utf-8")

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=", page) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_module_that_is_imported_is_there(path: Path) -> None:
    for name in re.findall(r'from "(\.[^"]+)"', path.read_text("utf-8")):
        assert (path.parent / name).is_file(), name
