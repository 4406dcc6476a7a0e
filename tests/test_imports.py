"""Dependencies are used by their public names only: imports and attributes of the product, read from its source."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("rules_engine", "server")
"""Folders of the package rules_engine, of which rules_engine/server is a link."""

TYPING_ONLY = "_typeshed"
"""Typeshed's package for annotations. Allowed under `if TYPE_CHECKING:` only, since it does not exist at run time.

The underscore says that, not that it is private: type checkers ship it and https://github.com/python/typeshed documents
it. No other private name is allowed there: a stub's private name can change in any version of the type checker.
"""

DOCUMENTED = {"os._exit"}
"""Names that begin with an underscore and are documented as public in the Python library reference."""


def is_private(part: str) -> bool:
    return part.startswith("_") and not (part.startswith("__") and part.endswith("__"))


def is_own(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == "rules_engine"


def typing_only_nodes(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes under `if TYPE_CHECKING:`."""
    return {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
    }


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield each full name that a statement imports, with the name that it binds; relative imports are our own."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname or alias.name.split(".", maxsplit=1)[0]
    elif node.module and not node.level:
        for alias in node.names:
            yield f"{node.module}.{alias.name}", alias.asname or alias.name


def root(node: ast.expr) -> ast.expr:
    """Return the leftmost expression of a chain of attributes, calls and subscripts."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def private_uses(source: str) -> list[tuple[int, str]]:
    """Return the line and text of each import or attribute that is a private name of another package."""
    tree = ast.parse(source)
    typing_only = typing_only_nodes(tree)
    found: list[tuple[int, str]] = []
    foreign: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name, bound in imported_names(node):
            if is_own(name):
                continue
            foreign.add(bound)
            parts = name.split(".")
            if parts[0] == TYPING_ONLY and node in typing_only:
                parts = parts[1:]
            if any(map(is_private, parts)) and name not in DOCUMENTED:
                found.append((node.lineno, name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            start, text = root(node), ast.unparse(node)
            if isinstance(start, ast.Name) and start.id in foreign and text not in DOCUMENTED:
                found.append((node.lineno, text))
    return sorted(found)


def product_files() -> list[Path]:
    """Return the product's Python files; os.walk does not enter folders that are symbolic links."""
    return sorted(
        Path(folder) / name
        for own in FOLDERS
        for folder, _, names in os.walk(REPOSITORY / own)
        for name in names
        if name.endswith(".py")
    )


def test_the_product_uses_no_private_name_of_another_package() -> None:
    uses = [
        f"{path.relative_to(REPOSITORY)}:{line}: {name}"
        for path in product_files()
        for line, name in private_uses(path.read_text())
    ]

    assert uses == []


def test_both_folders_are_read_without_their_linked_folders() -> None:
    folders = {path.relative_to(REPOSITORY).parts[:2] for path in product_files()}

    assert {("rules_engine", "language"), ("server", "commands")} <= folders
    linked = {("rules_engine", name) for name in ("rule_sets", "schemas", "inventories", "scenarios", "server")}
    assert not linked & folders


def test_what_the_makefile_builds_with_imports_no_tests() -> None:
    files = [path for folder in ("tools", "deploy") for path in (REPOSITORY / folder).glob("*.py")]
    imports = {
        name: path.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name, _ in imported_names(node)
    }

    assert imports
    assert [name for name in imports if name.split(".")[0] == "tests"] == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from httptools._httptools import X", "httptools._httptools.X"),
        ("from re2 import _re2", "re2._re2"),
        ("import re2._re2", "re2._re2"),
        ("import re2._re2 as raw", "re2._re2"),
        ("import _thread", "_thread"),
        ("def f():\n    from re2 import _re2", "re2._re2"),
        ("import re2; re2._re2.RE2", "re2._re2"),
        ("import re2 as regular; regular._re2", "regular._re2"),
        ("import urllib3.util; urllib3.util._x", "urllib3.util._x"),
        ("from httptools import parser; parser._x", "parser._x"),
        ("import re2; re2.compile('a')._regexp.Match", "re2.compile('a')._regexp"),
        ("from _typeshed import OptExcInfo", "_typeshed.OptExcInfo"),
        ("if TYPE_CHECKING:\n    from _typeshed import _x", "_typeshed._x"),
        ("if TYPE_CHECKING:\n    from logging import _SysExcInfoType", "logging._SysExcInfoType"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import _typeshed", "_typeshed"),
    ],
)
def test_a_private_name_of_another_package_is_found(source: str, name: str) -> None:
    assert [found for _, found in private_uses(source)] == [name]


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations",
        "import re2; re2.__name__; re2.compile('a')",
        "import os; os._exit(1)",
        "from rules_engine import _x; _x._y",
        "from . import _x; from ._x import _y; _y._z",
        "def f(self): return self._x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from _typeshed.wsgi import StartResponse",
        "import typing\nif typing.TYPE_CHECKING:\n    import _typeshed",
    ],
)
def test_a_public_or_own_name_is_accepted(source: str) -> None:
    assert private_uses(source) == []
