"""mkdocs.yml: every document is in the navigation of the site, once."""

import re
from pathlib import Path

PAGE = re.compile(r"^ +- (?:[^:\n]+: )?([\w./-]+\.md)$", re.M)


def test_every_document_is_in_the_navigation_once(root: Path) -> None:
    _, _, navigation = (root / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")
    docs = root / "docs"

    listed = PAGE.findall(navigation)
    assert sorted(listed) == sorted(
        path.relative_to(docs).as_posix() for path in docs.rglob("*.md")
    )


def test_the_site_loads_nothing_from_other_hosts(root: Path) -> None:
    settings = (root / "mkdocs.yml").read_text("utf-8")

    assert re.search(r"^  font: false$", settings, re.M)
    assert "://" not in settings
