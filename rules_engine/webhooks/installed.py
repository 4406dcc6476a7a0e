"""Native policies in a cluster, compared with the rules that they should be of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rules_engine.evaluation.rule_set.rule_set import RuleSet
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.kubernetes.native_objects import (
    NATIVE_RESOURCES,
    RULES_ANNOTATION,
    SLOT_LABEL,
    annotation_of,
)
from rules_engine.native.policy import NativeRules, translate_rules
from rules_engine.webhooks.drift import find_object_drift
from rules_engine.webhooks.policies import NativeObjects, in_phase_of
from rules_engine.webhooks.settings import Settings


@dataclass(frozen=True, slots=True)
class NativeMode:
    """The rules that the API server evaluates itself; None if this is unknown.

    `differences`: what is missing or edited among the policies of these rules, which may then not be evaluated.
    """

    rules: frozenset[str] | None = None
    differences: tuple[str, ...] = ()


def native_mode(rule_set: RuleSet, digest: str, objects: Iterable[Object]) -> NativeMode:
    """Compare rules with the objects of a cluster. Without an object with the digest of the rules, it is unknown."""
    own = {
        (text_member(each, "kind"), _name_of(each)): each
        for each in objects
        if annotation_of(each, RULES_ANNOTATION) == digest
    }
    if not own:
        return NativeMode()
    native = translate_rules(rule_set)
    found = [_differences(each, own) for each in _installations(native, digest, own.values())]
    differences = min(found, key=len, default=())
    return NativeMode(native.exported_ids if found and not differences else None, differences)


def _installations(native: NativeRules, digest: str, own: Iterable[Object]) -> Iterator[NativeObjects]:
    """Yield what each installation with these objects should have; names of policies begin with its name."""
    suffixes = ["", *(f"-{name}" for name in NativeObjects(native, digest, Settings()).check_names())]
    seen: set[tuple[str, str]] = set()
    for each in own:
        label = text_member(as_mapping(as_mapping(each.get("metadata")).get("labels")), SLOT_LABEL)
        name = _name_of(each)
        suffix = max((text for text in suffixes if name.endswith(text)), key=len)
        place = (label[:-2], label[-1:]) if label else (name.removesuffix(suffix), "")
        if place not in seen:
            seen.add(place)
            yield NativeObjects(native, digest, Settings(name=place[0]), place[1])


def _differences(expected: NativeObjects, own: dict[tuple[str, str], Object]) -> tuple[str, ...]:
    documents: Sequence[Object] = [*expected.policies(), *([expected.offers({})] if expected.reads_offers else [])]
    return tuple(
        text
        for each in documents
        if (kind := text_member(each, "kind")) in NATIVE_RESOURCES
        for stored in [own.get((kind, _name_of(each)))]
        for text in find_object_drift(each if stored is None else in_phase_of(each, stored), stored)
    )


def _name_of(document: Object) -> str:
    return text_member(as_mapping(document.get("metadata")), "name")
