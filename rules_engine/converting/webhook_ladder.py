"""The GPU allocation webhook's ladder as a FallbackLadder."""

from collections.abc import Sequence

from rules_engine.converting.rule_text import read_rule
from rules_engine.kinds.ladder.reading import read
from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.model.json.patch import Json
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.sources.yaml_text import dump


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
