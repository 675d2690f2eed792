"""Rules over the sources of the dashboard and over what is built from them."""

import gzip
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "dashboard"
SOURCES = sorted(path for path in (DASHBOARD / "src").rglob("*.ts*"))
PUBLIC = sorted((DASHBOARD / "public").iterdir())
STATIC = ROOT / "src" / "persys" / "gateway" / "dashboard" / "static"
GENERATED = DASHBOARD / "src" / "api" / "schema.ts"
WRITTEN = [path for path in SOURCES if path != GENERATED]
# Ways in which text becomes markup or code. The browser enforces the same rule with the headers of the page.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc"
    r"|dangerouslySet"
)
ELSEWHERE = re.compile(r"(?:https?:|wss?:)//[a-z]|url\(\s*['\"]?//", re.IGNORECASE)
NAMESPACES = ("http://www.w3.org/2000/svg",)
LINES_MAX = 250
FIRST_PAGE = ("index.html", "app.css", "theme.js", "loader.js", "app.js", "icon.svg")
FIRST_PAGE_BYTES_MAX = 400_000
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def named(path: Path) -> str:
    return path.relative_to(DASHBOARD).as_posix()


@pytest.mark.parametrize("path", WRITTEN, ids=named)
def test_a_source_file_is_described_short_and_complete(path: Path) -> None:
    text = path.read_text("utf-8")

    assert text.startswith("// ")
    assert len(text.splitlines()) <= LINES_MAX
    assert UNFINISHED.findall(text) == []


@pytest.mark.parametrize("path", [*WRITTEN, *PUBLIC], ids=named)
def test_no_source_file_makes_markup_of_text_or_loads_from_another_host(path: Path) -> None:
    text = path.read_text("utf-8")
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")

    assert MARKUP.findall(text) == []
    assert ELSEWHERE.findall(text) == []


def test_the_types_of_the_rest_api_are_current() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "rest-types"))["text"]()

    assert GENERATED.read_text("utf-8") == generated, "run `make generate`"


def test_the_lock_file_has_hashes_and_no_registry() -> None:
    packages = json.loads((DASHBOARD / "package-lock.json").read_text("utf-8"))["packages"]
    locked = {name: one for name, one in packages.items() if name}

    assert {name for name, one in locked.items() if "resolved" in one} == set()
    assert {name for name, one in locked.items() if not one.get("integrity")} == set()


def test_every_package_of_the_dashboard_is_pinned() -> None:
    package = json.loads((DASHBOARD / "package.json").read_text("utf-8"))
    versions = {**package["dependencies"], **package["devDependencies"]}

    assert [name for name, one in versions.items() if not re.fullmatch(r"[\d.]+", one)] == []


def test_the_first_page_is_small() -> None:
    sizes = {name: len(gzip.compress((STATIC / name).read_bytes())) for name in FIRST_PAGE}

    assert sum(sizes.values()) < FIRST_PAGE_BYTES_MAX, sizes


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text("utf-8")

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=", page) == []
    for name in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert (STATIC / name).is_file(), name
