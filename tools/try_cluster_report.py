"""The report of try_cluster.py: what it keeps, and how names are replaced."""

import json
import re
from collections import Counter
from typing import Any

Object = dict[str, Any]

LABELS = re.compile(
    r"nvidia\.com/(cuda\.[\w.-]+|mig\.(capable|strategy)|mig-[\w.]+\.(count|product|memory|replicas|slices\.\w+)"
    r"|gpu\.(product|family|count|memory|replicas|sharing-strategy|mode|compute\.\w+))"
)
DOMAINS = re.compile(r"(.+\.)?((nvidia|amd|intel|google|amazonaws|huawei)\.com|habana\.ai|(kubernetes|k8s)\.io)")
KEPT = (
    "Versions, labels of cards (nvidia.com/), resources, amounts, rules, reasons and numbers of objects are kept. "
    "Names of nodes and all other objects, and keys of other taints and resources, are replaced. "
    "Images, users, other labels, annotations, variables, Secrets and Events are left out."
)
STEP = ("rule", "action", "reason", "message", "audit", "resources")


class Names:
    """Names of the cluster, each replaced by one word such as node-1."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._counts = Counter[str]()

    def word(self, noun: str, name: str) -> str:
        if name not in self._words:
            self._counts[noun] += 1
            self._words[name] = f"{noun}-{self._counts[noun]}"
        return self._words[name]

    def key(self, noun: str, name: str) -> str:
        """Return the name of a resource or the key of a taint, if its domain is known, or a resource has none."""
        domain, slash, _ = name.partition("/")
        return name if (DOMAINS.fullmatch(domain) if slash else noun == "resource") else self.word(noun, name)

    def replace(self, value: Any) -> Any:
        """Replace the names in all texts of a value."""
        if isinstance(value, str):
            return re.sub(r"\w+(?:[./-]+\w+)*", self._replace_token, value)
        if isinstance(value, dict):
            # Only names of resources and labels are keys; an object may have the name of any other key.
            return {self.replace(key) if "/" in key else key: self.replace(each) for key, each in value.items()}
        return [*map(self.replace, value)] if isinstance(value, list) else value

    def _replace_token(self, token: re.Match[str]) -> str:
        if word := self._words.get(token[0]):
            return word
        first, *others = token[0].split("/")
        # A name such as nvidia.com/gpu stays, also if an object is named gpu.
        known = first not in self._words and DOMAINS.fullmatch(first)
        return token[0] if known else "/".join(self._words.get(part, part) for part in (first, *others))


def refusal_reason(errors: str) -> str:
    """Return the reason of the API server's refusal in kubectl's errors, whose other texts may quote names."""
    found = re.search(r"^Error from server(?: \((\w+)\))?: ", errors, re.MULTILINE)
    return found[1] or "Unknown" if found else "Invalid"


def describe_node(node: Object, names: Names) -> Object:
    """Return a node without names."""
    status, labels = node["status"], node["metadata"].get("labels", {})
    info = status.get("nodeInfo", {})
    return {
        "node": names.word("node", node["metadata"]["name"]),
        "versions": [info.get("kubeletVersion", ""), info.get("containerRuntimeVersion", "")],
        "ready": [each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"],
        "taints": [f"{names.key('taint', each['key'])}:{each['effect']}" for each in node["spec"].get("taints", ())],
        "labels": {key: value for key, value in labels.items() if LABELS.fullmatch(key)},
        "allocatable": {names.key("resource", key): value for key, value in status.get("allocatable", {}).items()},
    }


def step_members(step: Object) -> Object:
    """Return the members of a step of a decision that the report has."""
    return {key: step[key] for key in STEP if key in step}


def report_text(report: Object) -> str:
    """Return a summary for people, then all of the report as JSON."""
    decided = [each for pod in report["pods"] for each in pod.get("decisions", ())]
    rows = Counter((step["rule"], step["action"], step["reason"]) for each in decided for step in each["steps"])
    lines = [f"# gpu-rules {report['gpuRules']} on Kubernetes {report['kubernetes']}", "", KEPT, ""]
    lines += [
        f"- sets: {', '.join(report['sets']) or 'none'}",
        f"- problems: {'; '.join(report['problems']) or 'none'}",
    ]
    lines += [f"- {count} pods {name}" for name, count in Counter(pod["apiServer"] for pod in report["pods"]).items()]
    lines += ["", "| rule | action | reason | pods |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} | {count} |" for row, count in sorted(rows.items())]
    return "\n".join([*lines, "", "```json", json.dumps(report, indent=1, ensure_ascii=False), "```", ""])
