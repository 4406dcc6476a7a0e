"""Texts of single rules, which conversions write."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from rules_engine.kinds.ladder.reading import read
from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.loading.files import SourceFile
from rules_engine.loading.schemas import validate
from rules_engine.loading.yaml.documents import read_documents
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.sources.yaml_text import dump

R = TypeVar("R")


def read_rule(text: str, kind: str, read: Callable[[MapNode, Problems], R]) -> tuple[R | None, tuple[Problem, ...]]:
    """Read the rule of a text like that of a file; return it with the problems of the text."""
    problems = Problems()
    rule = None
    for document in read_documents(SourceFile("rule.yaml", text), problems):
        problems.items.extend(document.problems.items)
        rule = read(validate(kind, cast(MapNode, document.root), problems), problems)
    return rule, tuple(problems.items)


def webhook_ladder(resources: Sequence[str], name: str) -> tuple[str, tuple[Problem, ...]]:
    """Return the ladder of resources, the highest first, and the problems of its text.

    The last rung is taken without asking the cluster, as by that webhook, and the upward step of its documents is
    tried before it.
    """
    rungs: list[Json] = [{"resource": resource} for resource in resources[:-1]]
    spec: dict[str, Json] = {
        "direction": "DownThenUp",
        "rungs": [*rungs, {"resource": resources[-1], "assume": True}],
        "annotation": "gpu-webhook.k8s.io/fallback",
    }
    text = dump({"apiVersion": API_VERSION, "kind": FallbackLadder.kind, "metadata": {"name": name}, "spec": spec})
    _, problems = read_rule(text, FallbackLadder.kind, read)
    return text, problems
