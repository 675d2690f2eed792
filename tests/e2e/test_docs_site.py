"""The documentation site: it is built without warnings, works without a network, and dead links fail it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.browser import a_browser

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?://[^\">\s]+)")


def build(clone: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "scripts" / "mkdocs" / "build", site],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_document_has_a_page(site: Path) -> None:
    docs = ROOT / "docs"
    names = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]

    pages = [re.sub(r"README\.md$", "index.md", name).removesuffix("md") + "html" for name in names]
    assert [page for page in pages if not (site / page).is_file()] == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = {
        address
        for path in site.rglob("*.html")
        for address in LOADED.findall(path.read_text("utf-8"))
    }

    assert loaded == set()


def test_the_search_finds_text_of_the_documents(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]

    found = {entry["location"] for entry in entries if "confirm-dead" in entry["text"]}
    assert any(location.startswith("how-to/replace-node.html") for location in found)


def test_the_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    with a_browser() as browser:
        browser.driver.get(f"{(site / 'index.html').as_uri()}?q=confirm-dead")

        browser.until(
            lambda: "matching documents" in browser.text(".md-search-result__meta"), "results"
        )


def test_a_page_with_a_diagram_loads_its_script_from_the_site(site: Path) -> None:
    page = (site / "how-to" / "federation.html").read_text("utf-8")

    if not (site / "assets" / "mermaid.min.js").exists():
        pytest.skip("npm has fetched no mermaid: the diagram is shown as text")
    assert 'class="mermaid"' in page
    assert page.index('<script src="../assets/mermaid.min.js">') < page.index("/bundle.")


def test_files_outside_the_documents_are_part_of_the_site(site: Path) -> None:
    linked = site / "repository" / "examples" / "placement.yaml"

    assert linked.read_bytes() == (ROOT / "examples" / "placement.yaml").read_bytes()


@pytest.mark.parametrize(
    "text", ["[dead](no-such-file.md)", "[dead](backup.md#no-such-heading)", "[dead](#no-such)"]
)
@pytest.mark.usefixtures("site")  # installs the packages
def test_a_dead_link_fails_the_build(tmp_path: Path, text: str) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("docs", "scripts", "mkdocs.yml"):
            (clone / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", clone / "docs")
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    shutil.copy(ROOT / "mkdocs.yml", clone)
    document = clone / "docs" / "how-to" / "upgrade.md"
    document.write_text(f"{document.read_text('utf-8')}\n{text}\n")

    done = build(clone, tmp_path / "site")

    assert done.returncode != 0
    assert "how-to/upgrade.md" in done.stdout + done.stderr
