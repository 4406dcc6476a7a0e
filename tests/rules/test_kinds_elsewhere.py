"""Only the package of a kind, and the registry, name a kind in a decision: other code reads what a rule declares."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules_engine.rules.kinds import KINDS
from rules_engine.rules.rule_set.compiled import CompiledRule

REPOSITORY = Path(__file__).parents[2]
OWN = [REPOSITORY / "rules_engine" / "rules" / name for name in ("ladder", "injection", "validation", "kinds.py")]
FOLDERS = ("rules_engine", "server", "bench", "deploy")

COMPILED = {item.__name__ for item in CompiledRule.__subclasses__() if item.__module__.startswith("rules_engine.")}
NAMES = {kind.name for kind in KINDS} | {kind.value.__name__ for kind in KINDS} | COMPILED
"""Names of kinds in documents and of their classes."""


def decided(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the parts of a program that choose between cases: what a value, a type or a key is compared with."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, *classes]):
                yield from classes
            case ast.Compare(left=left, comparators=others):
                yield from (left, *others)
            case ast.match_case(pattern=pattern):
                yield pattern
            case ast.Dict(keys=keys):
                yield from filter(None, keys)


def named(part: ast.AST) -> Iterator[str]:
    """Yield the names, attributes and texts in a part of a program."""
    for node in ast.walk(part):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name


def is_a_place_in_the_registry(node: ast.AST) -> bool:
    """Return True for the kind of a package (`ladder.KIND`) and for an item or slice of KINDS."""
    match node:
        case ast.Attribute(attr="KIND") | ast.Subscript(value=ast.Name(id="KINDS") | ast.Attribute(attr="KINDS")):
            return True
        case _:
            return False


def choices(source: str) -> list[tuple[int, str]]:
    """Return the line and text of each choice between kinds of rules."""
    tree = ast.parse(source)
    aliases = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and alias.name in NAMES
    }
    parts = [part for part in decided(tree) if (NAMES | aliases).intersection(named(part))]
    parts += [node for node in ast.walk(tree) if is_a_place_in_the_registry(node)]
    return [(getattr(part, "lineno", 0), ast.unparse(part)) for part in parts]


def files() -> list[Path]:
    return [
        path
        for folder in FOLDERS
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if not any(path.is_relative_to(own) for own in OWN)
    ]


def test_no_code_elsewhere_chooses_between_kinds() -> None:
    places = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text}"
        for path in files()
        for line, text in choices(path.read_text(encoding="utf-8"))
    ]
    assert places == []


def test_every_folder_is_searched() -> None:
    folders = {path.relative_to(REPOSITORY).parts[0] for path in files()}
    assert folders == set(FOLDERS)
    assert {"FallbackLadder", "ResourceInjection", "Validation", "CompiledLadder", "CompiledValidation"} <= NAMES


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(rule, Validation)",
        "isinstance(rule, FallbackLadder | ResourceInjection)",
        "isinstance(compiled, (CompiledLadder, CompiledValidation))",
        "issubclass(kind.value, value.Validation)",
        "from a import Validation as V\nisinstance(rule, V)",
        "type(rule) is Validation",
        "rule.kind == 'Validation'",
        "'Validation' != rule.kind",
        "rule.kind in ('FallbackLadder', 'ResourceInjection')",
        "rule.kind == FallbackLadder.kind",
        "kind is ladder.KIND",
        "match rule:\n    case Validation(name=name): pass",
        "match rule:\n    case FallbackLadder() | ResourceInjection(): pass",
        "match rule.kind:\n    case 'Validation': pass",
        "match rule.kind:\n    case Validation.kind: pass",
        "{'Validation': 1}[rule.kind]",
        "{Validation: 1}[type(rule)]",
        "KINDS[0]",
        "KINDS[:3]",
        "registry.KINDS[-1].apply(rules, context)",
    ],
)
def test_a_choice_between_kinds_is_found(source: str) -> None:
    assert len(choices(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "Validation(name='a')",
        "rules: list[ResourceInjection] = []",
        "{'kind': ResourceInjection.kind}",
        "read('Validation')",
        "rule.kind == kind.name",
        "rule.kind in {kind.name for kind in kinds}",
        "isinstance(node, MapNode)",
        "match node:\n    case {'kind': str(kind), **others}: pass",
        "for kind in KINDS: kind.apply()",
    ],
)
def test_other_uses_are_accepted(source: str) -> None:
    assert choices(source) == []
