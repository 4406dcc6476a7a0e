"""Examples of the playground: blocks of the documents, packaged rule sets and inventories.

`python -m tools.playground_examples` writes server/commands/playground/examples.json.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rules_engine.language.yaml.text import dump_yaml
from rules_engine.rules.sources.packaged_sets import list_packaged_sets
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER
from rules_engine.rules.sources.schemas import without_schema_comments
from tools.documents import REPOSITORY, blocks

EXAMPLES = REPOSITORY / "server" / "commands" / "playground" / "examples.json"
RULES, POD, CLUSTER = "rules.yaml", "pod.yaml", "cluster.yaml"

BLOCKS = (
    ("README.md", "A first rule", "ladder.yaml", "job.yaml", ""),
    ("README.md", "A first rule, small slices", "ladder.yaml", "job.yaml", "cluster.yaml"),
    ("docs/reference/ladders.md", "Node pools", "cards.yaml", "train.yaml", "pools.yaml"),
)
"""Document, title, and the names of the blocks with rules, a pod and a cluster; "" is the default inventory."""

GROUPS = {"README.md": "README", "docs/reference/ladders.md": "Ladders"}

_SEPARATOR = "---\n"


def build_examples() -> list[dict[str, Any]]:
    return [*_of_documents(), *_of_examples(), *_of_recipes(), *_of_sets(), *_of_inventories()]


def texts_of(document: str) -> Mapping[str, str]:
    """Return the YAML blocks with a name of a document."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return {block.title: block.text for block in blocks(text) if block.language == "yaml" and block.title}


def _of_documents() -> Iterator[dict[str, Any]]:
    for document, title, rules, pod, cluster in BLOCKS:
        texts = texts_of(document)
        inventory = texts[cluster] if cluster else _inventory(DEFAULT_CLUSTER)
        yield _example(GROUPS[document], title, texts[rules], texts[pod], inventory)


def _of_examples() -> Iterator[dict[str, Any]]:
    for file in sorted((REPOSITORY / "examples" / "pod-defaults").glob("*.test.yaml")):
        name, test = file.name.removesuffix(".test.yaml"), file.read_text(encoding="utf-8").split(_SEPARATOR)[0]
        rules = without_schema_comments(file.with_name(f"{name}.yaml").read_text(encoding="utf-8"))
        yield _example("PodDefaults", name, rules, *_first_case(test, denied=False))


def _of_recipes() -> Iterator[dict[str, Any]]:
    for name, text in texts_of("docs/how-to/recipes.md").items():
        parts = text.split(_SEPARATOR)
        tests = [part for part in parts if yaml.safe_load(part)["kind"] == "RuleTest"]
        rules = _SEPARATOR.join(part for part in parts if part not in tests)
        yield _example("Recipes", name.removesuffix(".yaml"), rules, *_first_case(tests[0], denied=True))


def _of_sets() -> Iterator[dict[str, Any]]:
    for name, packaged in list_packaged_sets().items():
        texts = packaged.texts()
        rules = _SEPARATOR.join(text for file, text in texts.items() if not file.endswith(".test.yaml"))
        tests = [text for file, text in texts.items() if file.endswith(".test.yaml")]
        if "cases:" in tests[0]:  # Diagnostics decide no pod
            yield _example("Packaged sets", name, rules, *_first_case(tests[0].split(_SEPARATOR)[0], denied=False))


def _of_inventories() -> Iterator[dict[str, Any]]:
    for file in sorted(DEFAULT_CLUSTER.parent.glob("*.yaml")):
        yield {"group": "Clusters", "title": file.stem, "texts": {CLUSTER: _inventory(file)}}


def _inventory(file: Path) -> str:
    return without_schema_comments(file.read_text(encoding="utf-8"))


def _first_case(text: str, *, denied: bool) -> tuple[str, str]:
    """Return the pod and the cluster of a test's first case, if possible of one that is denied or warned of."""
    spec = yaml.safe_load(text)["spec"]
    cases = [case for case in spec["cases"] if "pod" in case and "oldPod" not in case]
    failing = [each for each in cases if not each["expect"].get("allowed", True) or each["expect"].get("warnings")]
    case = [*(failing if denied else []), *cases][0]
    pod = dict(case["pod"])
    pod = {"apiVersion": pod.pop("apiVersion", "v1"), "kind": pod.pop("kind", "Pod"), **pod}
    metadata = {"name": "train", **pod.get("metadata", {})}
    request = case.get("request", {})
    if namespace := request.get("namespace"):
        metadata["namespace"] = namespace
    cluster = spec.get("cluster") or next(iter(spec.get("clusters", {}).values()), None)
    if labels := request.get("namespaceLabels"):
        cluster = {"nodes": [], **(cluster or {}), "namespaces": {namespace: labels}}
    inventory: dict[str, Any] = {
        "apiVersion": "gpurules.io/v1",
        "kind": "ClusterInventory",
        "metadata": {"name": "example"},
        "spec": cluster,
    }
    return dump_yaml({**pod, "metadata": metadata}), dump_yaml(inventory) if cluster else _inventory(DEFAULT_CLUSTER)


def _example(group: str, title: str, rules: str, pod: str, cluster: str) -> dict[str, Any]:
    return {"group": group, "title": title, "texts": {RULES: rules, POD: pod, CLUSTER: cluster}}


if __name__ == "__main__":
    EXAMPLES.write_text(json.dumps(build_examples(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
