"""Hooks of MkDocs: the documents are written for code hosting sites, which render Markdown differently.

Files outside docs/ that documents link to are added to the site under repository/. Lists are indented as
Python-Markdown expects, and comments for tests are removed. Pages with diagrams load the script that draws
them, if `build` has fetched it.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from pymdownx.superfences import fence_code_format

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
OUTSIDE = "repository/"

_LINK = re.compile(r"(\]\()(?!https?://|mailto:|#)([^)\s#]+)")
_ITEM = re.compile(r"( *)([-*]|\d+\.)( +)")
_FENCE = re.compile(r" *```")
_COMMENT = re.compile(r" *<!-- .* -->")
_INDENT = 4
_MERMAID = ROOT / os.environ["MERMAID"]
_MERMAID_ON_SITE = "assets/mermaid.min.js"
_DIAGRAM = 'class="mermaid"'
_FIRST_SCRIPT = re.compile(r'<script src="(?P<root>[./]*)assets/javascripts/bundle')


def on_config(config: Any) -> Any:
    if _MERMAID.exists():
        diagram = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [diagram]}
    return config


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load the script before that of the theme, which would load it from another host."""
    if _DIAGRAM not in output:
        return output

    def with_mermaid(found: re.Match[str]) -> str:
        return f'<script src="{found["root"]}{_MERMAID_ON_SITE}"></script>{found[0]}'

    return _FIRST_SCRIPT.sub(with_mermaid, output, count=1)


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside docs/ that documents link to."""
    if _MERMAID.exists():
        script = str(_MERMAID)
        files.append(File.generated(config, _MERMAID_ON_SITE, abs_src_path=script))
    added: set[str] = set()
    waiting = [f"{DOCS}{file.src_uri}" for file in files.documentation_pages()]
    while waiting:
        document = waiting.pop()
        for _, target in _links((ROOT / document).read_text("utf-8")):
            path = _resolved(document, target)
            if path.startswith(DOCS) or path in added or not (ROOT / path).is_file():
                continue
            added.add(path)
            if path.endswith(".md"):
                waiting.append(path)
            files.append(
                File.generated(
                    config,
                    f"{OUTSIDE}{path}",
                    abs_src_path=str(ROOT / path),
                    inclusion=InclusionLevel.NOT_IN_NAV,
                )
            )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source: str = page.file.src_uri
    document = source.removeprefix(OUTSIDE) if source.startswith(OUTSIDE) else f"{DOCS}{source}"
    lines = []
    for line, is_code in _lines(markdown):
        if is_code:
            lines.append(line)
        elif not _COMMENT.fullmatch(line):
            lines.append(_LINK.sub(lambda found: found[1] + _on_site(document, found[2]), line))
    return "\n".join(_indented(lines)) + "\n"


def _links(text: str) -> Iterator[tuple[str, str]]:
    for line, is_code in _lines(text):
        if not is_code:
            yield from _LINK.findall(line)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced block."""
    fenced = False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        yield line, fenced or fence
        if fence:
            fenced = not fenced


def _resolved(document: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), target))


def _on_site(document: str, target: str) -> str:
    """The link from the page of a document to the page or file of its target."""
    here, there = _place(document), _place(_resolved(document, target))
    return posixpath.relpath(there, posixpath.dirname(here) or ".")


def _place(path: str) -> str:
    return path.removeprefix(DOCS) if path.startswith(DOCS) else f"{OUTSIDE}{path}"


def _indented(lines: list[str]) -> Iterator[str]:
    """Indent the content of list items by four spaces per level, with empty lines before lists and tables."""
    levels: list[int] = []  # where the content of each open item begins
    shift, before = 0, ""
    for line, is_code in _lines("\n".join(lines)):
        begins_code = is_code and _FENCE.match(line) is not None
        if not line.strip() or (is_code and not begins_code):
            yield " " * shift + line if line.strip() else line
            before = line
            continue
        indent = len(line) - len(line.lstrip(" "))
        while levels and indent < levels[-1]:
            levels.pop()
        inner = indent - (levels[-1] if levels else 0)
        shift = _INDENT * len(levels) + inner - indent
        item = None if is_code else _ITEM.match(line)
        is_row = line.lstrip().startswith("|")
        if before.strip() and (
            (item and not _ITEM.match(before) and indent <= len(before) - len(before.lstrip(" ")))
            or (is_row and not before.lstrip().startswith("|"))
        ):
            yield ""
        yield " " * shift + line if shift >= 0 else line[-shift:]
        if item:
            levels.append(len(item[0]))
        before = line
