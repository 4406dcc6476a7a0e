"""Single rules as YAML text, as conversions write them."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from rules_engine.language.files import SourceFile
from rules_engine.language.schemas import validate
from rules_engine.language.yaml.documents import read_documents
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.language.yaml.text import dump_yaml
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.rules.ladder.reading import read
from rules_engine.rules.ladder.value import WEBHOOK_ANNOTATION, FallbackLadder

R = TypeVar("R")


def read_rule(text: str, kind: str, read: Callable[[MapNode, Problems], R]) -> tuple[R | None, tuple[Problem, ...]]:
    """Read the rule in a text as if from a file; return it with its problems."""
    problems = Problems()
    rule = None
    for document in read_documents(SourceFile("rule.yaml", text), problems):
        problems.items.extend(document.problems.items)
        rule = read(validate(kind, cast(MapNode, document.root), problems), problems)
    return rule, tuple(problems.items)


def webhook_ladder(resources: Sequence[str], name: str) -> tuple[str, tuple[Problem, ...]]:
    """Return the text of a ladder equivalent to gpu-webhook's, with rungs from highest to lowest, and its problems.

    The last rung is taken without checking the cluster, as gpu-webhook does. The upward step that gpu-webhook's
    documentation describes is tried before it.
    """
    rungs: list[Json] = [{"resource": resource} for resource in resources[:-1]]
    spec: dict[str, Json] = {
        "direction": "DownThenUp",
        "rungs": [*rungs, {"resource": resources[-1], "assume": True}],
        "annotation": WEBHOOK_ANNOTATION,
    }
    text = dump_yaml({"apiVersion": API_VERSION, "kind": FallbackLadder.kind, "metadata": {"name": name}, "spec": spec})
    _, problems = read_rule(text, FallbackLadder.kind, read)
    return text, problems
