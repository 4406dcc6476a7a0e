"""The digest of rules: equal for equal rule documents, and for no others."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.digest import digest_documents
from rules_engine.language.yaml.documents import read_documents
from rules_engine.model.problems.problem import Problems
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.sources.rule_files import DEFAULT_RULES
from tests.support.authoring import injection, ladder, validation, write

ONE = ladder("one", "nvidia.com/gpu", priority="2", params='{share: 0.5, name: "x"}')
TWO = injection("two", coefficients='{cpu: "0.5"}')
THREE = validation("three", '"true"')
BOTH = f"{ONE}---\n{TWO}"
COMMENTED = f"# A comment.\n{BOTH}".replace("kind: ", "kind:   ").replace("priority: 2", "priority: 2 # second")
POD = "metadata: {name: p}, spec: {containers: [{name: main, image: a}]}"
MANIFEST = f"{{apiVersion: v1, kind: Pod, {POD}}}"
TEST = f"""\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {{name: t}}
spec:
  cases: [{{name: c, pod: {{{POD}}}, expect: {{allowed: true}}}}]
"""
CLUSTER = "apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {name: c}\nspec: {nodes: []}\n"


def digest_of(folder: Path, files: dict[str, str]) -> str:
    """Write files, and return the digest of the folder's rules."""
    loaded = load_documents([write(folder, files)])
    assert loaded.problems == ()
    return loaded.digest


def as_json(text: str) -> str:
    return json.dumps(yaml.safe_load(text), indent=2)


@pytest.mark.parametrize(
    "files",
    [
        {"named.yaml": f"{TWO}---\n{ONE}"},
        {"a.yaml": TWO, "b.yaml": ONE},
        {"a.yaml": ONE, "b.yaml": TWO, "pod.yaml": MANIFEST},
        {"a.yaml": COMMENTED},
        {"a.yaml": yaml.safe_dump_all(list(yaml.safe_load_all(BOTH)), sort_keys=True)},
        {"a.json": as_json(ONE), "b.json": as_json(TWO)},
        {"a.yaml": BOTH, "a.test.yaml": TEST, "cluster.yaml": CLUSTER},
    ],
    ids=["order", "split", "manifest", "comments", "key order", "JSON", "tests and inventories"],
)
def test_the_same_rules_have_the_same_digest(tmp_path: Path, files: dict[str, str]) -> None:
    assert digest_of(tmp_path / "other", files) == digest_of(tmp_path / "one", {"rules.yaml": BOTH})


@pytest.mark.parametrize("share", ["0.50", "5e-1", "+.5", "0.05e1", "50.0E-02"])
def test_equal_numbers_have_the_same_digest(tmp_path: Path, share: str) -> None:
    other = {"rules.yaml": BOTH.replace("share: 0.5", f"share: {share}")}
    assert digest_of(tmp_path / "other", other) == digest_of(tmp_path / "one", {"rules.yaml": BOTH})


@pytest.mark.parametrize(
    "numbers",
    [
        ("1", "1.0", "'1.0'", "1e1", "-1.0"),
        ("0.0", "-0.0", "0"),
        ("1e-400", "1e-4000", "1e-99999999999999999999999", "0.0"),
        ("0.1", "0.10000000000000000000001", f"0.{'1' * 10_000}", f"0.{'1' * 10_001}"),
    ],
)
def test_other_numbers_have_other_digests(tmp_path: Path, numbers: tuple[str, ...]) -> None:
    texts = [BOTH.replace("share: 0.5", f"share: {number}") for number in numbers]
    digests = {digest_of(tmp_path / str(place), {"rules.yaml": text}) for place, text in enumerate(texts)}
    assert len(digests) == len(numbers)


def test_the_packaged_rules_have_the_same_digest_without_their_tests() -> None:
    rules = [file for file in DEFAULT_RULES.iterdir() if not file.name.endswith(".test.yaml")]
    assert load_documents(sorted(rules, reverse=True)).digest == load_documents([DEFAULT_RULES]).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("priority: 2", "priority: 3"),
        ("priority: 2", "description: a"),
        ("share: 0.5", 'share: "0.5"'),
        ("share: 0.5", "share: 0.50000000000000000001"),
        ("share: 0.5", 'share: {float: "0.5"}'),
        ("share: 0.5", "share: [0.5]"),
        ('name: "x"', "name: true"),
        ("name: one", "name: uno"),
        ('cpu: "0.5"', 'cpu: "0.50"'),
        ("---", f"---\n{THREE}---"),
        (f"---\n{TWO}", ""),
    ],
)
def test_other_rules_have_another_digest(tmp_path: Path, old: str, new: str) -> None:
    assert old in BOTH
    other = {"rules.yaml": BOTH.replace(old, new)}
    assert digest_of(tmp_path / "other", other) != digest_of(tmp_path / "one", {"rules.yaml": BOTH})


def test_documents_with_errors_are_part_of_the_digest(tmp_path: Path) -> None:
    digests = set()
    for field in ("unknown: 1", "unknown: 2"):
        (tmp_path / "rules.yaml").write_text(f"{ONE}  {field}\n")
        digests.add(load_documents([tmp_path]).digest)
    (tmp_path / "rules.yaml").write_text(ONE)
    digests.add(load_documents([tmp_path]).digest)
    assert len(digests) == 3


def test_a_text_that_aliases_repeat_is_hashed_once() -> None:
    """Expanded, the document would take 100 GB."""
    text = f"- &long {'x' * 1_000_000}\n" + "- *long\n" * 100_000
    (document,) = read_documents(SourceFile("a.yaml", text), Problems())
    assert len(digest_documents([("Validation", "a", document.root)])) == 64


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text('aé01.:{"\\\n ', max_size=5)
KEYS = st.text("abcde", min_size=1, max_size=2)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


def hashed(*values: Any) -> str:
    """Return the digest of documents of one kind and name."""
    text = "\n---\n".join(json.dumps(value) for value in values)
    problems = Problems()
    documents = read_documents(SourceFile("a.yaml", text), problems)
    assert not problems.items
    return digest_documents(("Validation", "a", document.root) for document in documents)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys or indexes."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


@given(DOCUMENTS, st.data(), SCALARS)
def test_any_change_of_a_value_changes_the_digest(document: dict[str, Any], data: st.DataObject, value: Any) -> None:
    changed = deepcopy(document)
    container, key = data.draw(st.sampled_from(list(places(changed))))
    if data.draw(st.booleans()):
        container[key] = value
    else:
        del container[key]
    same = json.dumps(document, sort_keys=True) == json.dumps(changed, sort_keys=True)
    assert (hashed(document) == hashed(changed)) == same


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_the_digest_ignores_the_order_of_keys_and_documents(documents: list[dict[str, Any]], random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    others = [shuffled(document) for document in documents]
    random.shuffle(others)
    assert hashed(*others) == hashed(*documents)
