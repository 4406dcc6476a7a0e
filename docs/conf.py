"""The site of the documents (`make docs`), built from the Markdown that is read in the repository, too."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from rules_engine.cli.schema import ANSWERS, load_schema

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

    The index gets the contents at the side, the page of answers their members.
    """
    page = DOCS / f"{docname}.md"
    text = _FENCE.sub(r"```{code-block} \1\n:caption: \2", source[0])
    text = _PAGE.sub("[]", text)
    text = _LINK.sub(lambda link: f"{link[1]}{_address(page, link[2])}{link[3]}", text)
    further = {"index": _contents, "reference/answers": _answer_tables}.get(docname)
    source[0] = text + (further(text) if further else "")


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


def _answer_tables(_page: str) -> str:
    """Return a section for each command's answer, with a table of its members."""
    lines = []
    for name in ANSWERS:
        lines += ["", f"## {name}", "", "| member | type | meaning |", "|---|---|---|"]
        schema = load_schema(name)
        lines += [
            f"| `{path}` | {type_} | {meaning} |" for path, type_, meaning in _members(schema["anyOf"][0], schema)
        ]
    return "\n".join([*lines, ""])


def _members(value: dict[str, Any], schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the path, the type and the meaning of each member of a value, and of the values in it."""
    if "$ref" in value:
        value = schema["$defs"][value["$ref"].rpartition("/")[2]]
    for each in value.get("anyOf", ()):
        yield from _members(each, schema, above)
    if isinstance(value.get("items"), dict):
        yield from _members(value["items"], schema, f"{above}[]")
    if isinstance(value.get("additionalProperties"), dict):
        yield from _members(value["additionalProperties"], schema, f"{above}.*")
    for name, member in value.get("properties", {}).items():
        path = f"{above}.{name}".removeprefix(".")
        yield path, _type_text(member, schema), member.get("description", "").replace("|", "&#124;")
        if f".{name}[]" not in above:  # effects of findings are findings
            yield from _members(member, schema, path)


def _type_text(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return a type in words: `string`, `"Error" or "Warning"`, `list of objects`, `number or null`."""
    if "$ref" in value:
        value = schema["$defs"][value["$ref"].rpartition("/")[2]]
    if "anyOf" in value:
        return " or ".join(_type_text(each, schema) for each in value["anyOf"])
    if "enum" in value:
        return " or ".join(json.dumps(each) for each in value["enum"])
    if value.get("type") == "array":
        items = value.get("items")
        return f"list of {_type_text(items, schema)}" if isinstance(items, dict) else "list"
    return str(value.get("type", "any value"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", adapt)
