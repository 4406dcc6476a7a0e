"""Comparison of the native policies of a cluster with the rules they were generated from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rules_engine.evaluation.rule_set.rule_set import RuleSet
from rules_engine.model.json.lenient import Object, as_mapping, text_member
from rules_engine.model.kubernetes.native_objects import (
    NATIVE_RESOURCES,
    RULES_ANNOTATION,
    SLOT_LABEL,
    STAMP_ANNOTATION,
    SWITCH,
    annotation_of,
)
from rules_engine.native.policy import translate_rules
from rules_engine.webhooks.drift import find_object_drift
from rules_engine.webhooks.policies import NativeObjects, without_phase
from rules_engine.webhooks.settings import Settings


@dataclass(frozen=True, slots=True)
class NativeMode:
    """The rules that the API server evaluates itself; None if this is unknown.

    `differences`: what is missing or edited among the policies of these rules.
    """

    rules: frozenset[str] | None = None
    differences: tuple[str, ...] = ()


def native_mode(rule_set: RuleSet, digest: str, objects: Iterable[Object]) -> NativeMode:
    """Compare rules with the objects of a cluster.

    It is unknown without an object of these rules, if other rules are active, and for policies that another version
    of gpu-rules wrote.
    """
    known = {(text_member(each, "kind"), _name_of(each)): each for each in objects}
    own = [each for each in known.values() if annotation_of(each, RULES_ANNOTATION) == digest]
    if not own:
        return NativeMode()
    native = translate_rules(rule_set)
    suffixes = ["", *(f"-{each}" for each in NativeObjects(native, digest, Settings()).check_names())]
    complete, differences = False, list[str]()
    stamps = {_installation_of(each, suffixes): annotation_of(each, STAMP_ANNOTATION) for each in own}
    for (name, slot), stamp in stamps.items():
        expected = NativeObjects(native, digest, Settings(name=name), slot)
        active = annotation_of(known.get((SWITCH, name), {}), RULES_ANNOTATION)
        if (slot and stamp != expected.stamp) or active not in ("", digest):
            continue
        differing = [*_differences(expected, known)]
        differences += differing
        complete = complete or not differing
    return NativeMode(native.exported_ids if complete else None, tuple(differences))


def _installation_of(document: Object, suffixes: Iterable[str]) -> tuple[str, str]:
    """Return the name and the slot of the installation that an object belongs to; `suffixes`: of names of policies."""
    labels, name = as_mapping(as_mapping(document.get("metadata")).get("labels")), _name_of(document)
    if label := text_member(labels, SLOT_LABEL):
        return label[:-2], label[-1]
    return name.removesuffix(max((text for text in suffixes if name.endswith(text)), key=len)), ""


def _differences(expected: NativeObjects, known: Mapping[tuple[str, str], Object]) -> Iterator[str]:
    documents: Sequence[Object] = [*expected.policies(), *([expected.offers({})] if expected.reads_offers else [])]
    for each in documents:
        if (kind := text_member(each, "kind")) in NATIVE_RESOURCES:
            stored = known.get((kind, _name_of(each)))
            yield from find_object_drift(each, None if stored is None else without_phase(stored, each))


def _name_of(document: Object) -> str:
    return text_member(as_mapping(document.get("metadata")), "name")
