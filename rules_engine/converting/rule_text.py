"""Texts of single rules, which conversions write."""

from collections.abc import Callable
from typing import TypeVar, cast

from rules_engine.loading.files import SourceFile
from rules_engine.loading.schemas import validate
from rules_engine.loading.yaml.documents import read_documents
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.problems import Problems

R = TypeVar("R")


def read_rule(text: str, kind: str, read: Callable[[MapNode, Problems], R]) -> tuple[R | None, tuple[Problem, ...]]:
    """Read the rule of a text like that of a file; return it with the problems of the text."""
    problems = Problems()
    rule = None
    for document in read_documents(SourceFile("rule.yaml", text), problems):
        problems.items.extend(document.problems.items)
        rule = read(validate(kind, cast(MapNode, document.root), problems), problems)
    return rule, tuple(problems.items)
