"""The GPU allocation webhook's ladder as a FallbackLadder."""

from collections.abc import Sequence
from typing import cast

from rules_engine.authoring.yaml_text import dump
from rules_engine.kinds.ladder.reading import read
from rules_engine.kinds.ladder.value import FallbackLadder
from rules_engine.loading.diagnostics import Diagnostics
from rules_engine.loading.files import SourceFile
from rules_engine.loading.schemas import validate
from rules_engine.loading.yaml.documents import read_documents
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.json.patch import Json
from rules_engine.model.problems import Problem
from rules_engine.model.rules import API_VERSION


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
    diagnostics = Diagnostics()
    for document in read_documents(SourceFile("ladder.yaml", text), diagnostics):
        diagnostics.problems.extend(document.diagnostics.problems)
        read(validate(FallbackLadder.kind, cast(MapNode, document.root), diagnostics), diagnostics)
    return text, tuple(diagnostics.problems)
