"""Texts of single rules, which conversions write."""

from collections.abc import Callable
from typing import TypeVar, cast

from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import SourceFile
from rules_engine.loading.schemas import validate
from rules_engine.loading.yaml.documents import read_documents
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems import Problem

R = TypeVar("R")


def read_rule(text: str, kind: str, read: Callable[[MapNode, Diagnostics], R]) -> tuple[R | None, tuple[Problem, ...]]:
    """Read the rule of a text like that of a file; return it with the problems of the text."""
    diagnostics = Diagnostics()
    rule = None
    for document in read_documents(SourceFile("rule.yaml", text), diagnostics):
        diagnostics.problems.extend(document.diagnostics.problems)
        rule = read(validate(kind, cast(MapNode, document.root), diagnostics), diagnostics)
    return rule, tuple(diagnostics.problems)
