"""The contract of import-linter for the layers of packages."""

from typing import Any

import pytest
from grimp import ImportGraph

from tools.package_layers import PackageLayersContract


def checked(line: str, *imports: tuple[str, str]) -> list[str]:
    """Return what is wrong in a package with the modules a, b and c."""
    graph = ImportGraph()
    for name in ("p", "p.a", "p.b", "p.c", "p.c.d"):
        graph.add_module(name)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    contract: Any = PackageLayersContract(
        "layers", {}, {"name": "layers", "type": "package_layers", "packages": [line]}
    )
    found = contract.check(graph, False)
    assert found.kept == (not found.metadata["wrong"])
    wrong: list[str] = found.metadata["wrong"]
    return wrong


def test_imports_of_lower_layers_are_kept() -> None:
    assert checked("p: a > b > c", ("p.a", "p.b"), ("p.a", "p.c.d"), ("p.b", "p.c")) == []
    assert checked("p: a > b | (x) > c") == []


@pytest.mark.parametrize(
    ("line", "imports", "wrong"),
    [
        ("p: a > b > c", ("p.c.d", "p.a"), "p.c imports p.a: p.c.d → p.a"),
        ("p: a | b > c", ("p.a", "p.b"), "p.a imports p.b: p.a → p.b"),
        ("p: a > b", ("p.a", "p.b"), "p.c is in no layer"),
        ("p: a > b > c > x", ("p.a", "p.b"), "p.x is a layer and does not exist"),
    ],
)
def test_what_is_wrong_is_named(line: str, imports: tuple[str, str], wrong: str) -> None:
    assert checked(line, imports) == [wrong]
