"""Headers of documents: apiVersion and kind, which distinguish gpu-rules' documents from other tools'."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from rules_engine.language.files import SourceFile
from rules_engine.language.schemas import spelling_hint
from rules_engine.language.yaml.documents import split_documents
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode, first_key
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules.rule import API_VERSION

RULE_KINDS = ("FallbackLadder", "PodDefaults", "ResourceInjection", "Validation")
"""The kinds of rules, in the order of evaluation."""

DOCUMENT_KINDS = (
    *(*RULE_KINDS, "Diagnostic", "WorkloadKind", "AcceleratorCatalogue"),
    *("RuleTest", "Simulation", "ClusterInventory"),
)
"""All kinds of gpu-rules documents, including kinds that a load does not read."""

_KIND_LINE = re.compile(r"^kind:[ \t]*[\"']?(\w*)", re.MULTILINE)
"""The line with the kind, in a document with a syntax error."""

_GROUP = "gpurule"
"""Part of the API group without punctuation, also present in misspelt groups."""

_MISSPELT_KIND = 0.85
"""Least similarity of a kind to one of ours, in an object of another group: `Test` of other tools is no RuleTest."""


def is_foreign(root: YamlNode, kinds: Sequence[str]) -> bool:
    """Return True if a document does not have an apiVersion or kind of gpu-rules, misspelt ones included."""
    if not isinstance(root, MapNode):
        return False
    version, kind = api_version(root), member_text(root, "kind")
    if version is None:
        return kind is not None and not spelling_hint(kind, kinds)
    if _GROUP in version.casefold().replace("-", "").replace(".", ""):
        return False
    # An editor may not have written the file to its end yet.
    if kind is None and API_VERSION.startswith(version):
        return False
    # Files of Helm have an apiVersion only; a rule without its kind has a spec.
    return not get_close_matches(kind, kinds, 1, _MISSPELT_KIND) if kind else root.get("spec") is None


def api_version(root: YamlNode) -> str | None:
    """Return the apiVersion of a document; None if it has none."""
    return member_text(root, "apiVersion") if isinstance(root, MapNode) else None


def document_kind(root: YamlNode) -> str | None:
    """Return the kind of a document; None if it has none."""
    return member_text(root, "kind") if isinstance(root, MapNode) else None


def member_text(root: MapNode, name: str) -> str | None:
    """Return a member as text; None if it is absent, a list or a map."""
    member = root.get(name)
    return member.source.text if isinstance(member, ScalarNode) else None


def read_kind(root: YamlNode, problems: Problems, kinds: Sequence[str]) -> str | None:
    """Return the kind of a document; None, with problems, if it is not one of `kinds`."""
    if not isinstance(root, MapNode):
        problems.error(Code.WRONG_TYPE, "a document must be a map that begins with apiVersion and kind", root)
        return None
    version, kind = root.get("apiVersion"), root.get("kind")
    first = first_key(root)
    for name, node in (("apiVersion", version), ("kind", kind)):
        if node is not None and not isinstance(node, ScalarNode):
            problems.error(Code.WRONG_TYPE, f"{name} must be text", node)
        # Without a kind there is no schema to find other missing fields.
        elif node is None and kind is None:
            problems.error(Code.MISSING_FIELD, f"the document needs '{name}'", first)
    if isinstance(version, ScalarNode) and version.source.text != API_VERSION and not is_foreign(root, kinds):
        message = f"unknown apiVersion '{truncate(version.source.text)}': write {API_VERSION}"
        problems.error(Code.UNKNOWN_API_VERSION, message, version)
    if not isinstance(kind, ScalarNode):
        return None
    if kind.source.text not in kinds:
        meant = spelling_hint(kind.source.text, kinds) or f": expected one of {', '.join(kinds)}"
        problems.error(Code.UNKNOWN_KIND, f"unknown kind '{truncate(kind.source.text)}'{meant}", kind)
        return None
    return kind.source.text


def pair_with_kinds(problems: Sequence[Problem], source: SourceFile) -> Iterator[tuple[Problem, str | None]]:
    """Yield problems of documents with syntax errors, each with the document's kind; None unless it has exactly one."""
    documents = list(split_documents(source.text)) if problems else []
    starts = [part.line for part in documents]
    for problem in problems:
        # An empty file has no parts.
        around = documents[bisect_left(starts, problem.location.line) - 1 :][:1]
        kinds = [kind for part in around for kind in _KIND_LINE.findall(part.text)]
        yield problem, kinds[0] if len(kinds) == 1 else None
