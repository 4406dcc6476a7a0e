"""The site of the documents (`make docs`), built from the Markdown that is read in the repository, too."""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

DOCS = Path(__file__).parent
REPOSITORY_URL = "https://github.com/gpu-rules/gpu-rules/blob/main/"
"""Base URL of links to files outside of docs/."""

project = "gpu-rules"
author = "the gpu-rules authors"
html_title = "gpu-rules"
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # examples of broken expressions
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": REPOSITORY_URL.partition("/blob/")[0],
    "source_branch": "main",
    "source_directory": "docs/",
}

_LOG = logging.getLogger(__name__)

_FENCE = re.compile(r"^```(\w+) ([^\n]+)$", re.MULTILINE)
_PAGE = re.compile(r"\[[\w./-]+\.md\](?=\([\w./-]+\.md[)#])")
"""The text of a link that is the name of a page."""

_LINK = re.compile(r"(\]\()(\.\.?/[^)\s]+)(\))")


def adapt(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx's signature
    """Show the names of files above code blocks and the titles of pages in links; let links lead to the repository.

    The index gets the contents at the side.
    """
    page = DOCS / f"{docname}.md"
    text = _FENCE.sub(r"```{code-block} \1\n:caption: \2", source[0])
    text = _PAGE.sub("[]", text)
    text = _LINK.sub(lambda link: f"{link[1]}{_address(page, link[2])}{link[3]}", text)
    source[0] = text + (_contents(text) if docname == "index" else "")


def _address(page: Path, target: str) -> str:
    path, hash_, anchor = target.partition("#")
    file = Path(os.path.normpath(page.parent / path))
    if file.is_relative_to(DOCS):
        return target
    if not file.exists():
        _LOG.warning("%s not found", target, location=page.stem)
    return f"{REPOSITORY_URL}{file.relative_to(DOCS.parent)}{hash_}{anchor}"


def _contents(index: str) -> str:
    """Return a hidden table of contents for each section of the index that lists pages."""
    sections = re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", index, re.MULTILINE)
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])
        for title, body in sections
        if (pages := re.findall(r"^- \[.+?\]\(([\w./-]+\.md)\)", body, re.MULTILINE))
    )


def setup(app: Sphinx) -> None:
    app.connect("source-read", adapt)
