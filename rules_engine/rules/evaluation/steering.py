"""Rules that read what other rules write into a pod: a second admission would decide otherwise."""

from collections.abc import Iterator
from itertools import product

from rules_engine.language.cel.syntax.tree import Call, Expression, Literal, child_nodes
from rules_engine.model.kubernetes.api_defaults import CONTAINER_LISTS
from rules_engine.model.kubernetes.kept_fields import Kept, keep_at, keeps_path, merge_fields
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.evaluation.rule_reads import fields_read_by
from rules_engine.rules.overlap import may_share_pods
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.globs import matches_any
from rules_engine.rules.rule_set.rule_set import RuleSet


def find_steering(rule_set: RuleSet) -> Iterator[Problem]:
    """Yield an error for each member that a rule writes and a rule at /mutate reads, its own included."""
    rules = rule_set.rules_at(Endpoint.MUTATE)
    if not any(compiled.rule.interests.writes for compiled in rules):
        return
    for reader in rules:
        reads = _members_read(reader)
        for other in rules:
            if may_share_pods(other.rule, reader.rule):
                yield from _find_reads(other.rule, reader, reads)
                if reader.rule.interests.writes:
                    yield from _find_amounts(reader, other.rule, reads)


def _members_read(reader: CompiledRule[Rule]) -> Kept:
    """Return the members of a request that a rule's match, its kind and its expressions read."""
    reads = fields_read_by(reader, reader.programs)
    labels = [("metadata", "labels", each.key) for each in reader.rule.match.object_selector.requirements]
    for path in (*labels, *reader.rule.interests.reads):
        reads = merge_fields(reads, keep_at(("object", *path)))
    return reads


def _find_reads(writer: Rule, reader: CompiledRule[Rule], reads: Kept) -> Iterator[Problem]:
    reported: set[Location] = set()
    for path, place in writer.interests.writes.items():
        if place not in reported and _reads(reads, path):
            reported.add(place)
            own = "this rule" if reader.rule is writer else f"{reader.rule.id} ({reader.rule.location})"
            message = (
                f"{own} reads {'.'.join(path)} of pods, which {writer.id} writes here: "
                "a second admission of the pod would decide otherwise"
            )
            yield Problem(code=Code.WRITTEN_AND_READ, message=message, location=place)


def _reads(reads: Kept, path: tuple[str, ...]) -> bool:
    """Return True if a member is read, or the presence of the map that it is in."""
    return keeps_path(reads, "object", *path) or keeps_path(reads, "object", *path[:-1], "")


def _find_amounts(reader: CompiledRule[Rule], giver: Rule, reads: Kept) -> Iterator[Problem]:
    """Yield errors of resources that a rule counts, and of annotations that it reads, which a later kind gives."""
    for key in sorted(giver.interests.annotations):
        if _reads(reads, ("metadata", "annotations", key)):
            message = f"{giver.id} ({giver.location}) gives pods the annotation {key} after this rule has read it"
            yield Problem(code=Code.WRITTEN_AND_READ, message=message, location=reader.rule.location)
    gives = frozenset() if giver.interests.moves else giver.interests.gives
    patterns = reader.rule.match.resources
    # A pod that gets one of them by the other rule requests what that rule counts.
    counted = giver.interests.resources or frozenset()
    matched = {name for name in gives if matches_any(patterns, name)}
    if matched and not all(matches_any(patterns, name) for name in counted):
        place = reader.rule.origin.get(("match", "resources"), reader.rule.location)
        message = (
            f"{giver.id} ({giver.location}) gives pods {', '.join(sorted(matched))} after this rule has matched them"
        )
        yield Problem(code=Code.WRITTEN_AND_READ, message=message, location=place)
    if read := gives & _amounts_named(reads):
        message = f"{giver.id} ({giver.location}) gives pods {', '.join(sorted(read))} after this rule has read amounts"
        yield Problem(code=Code.WRITTEN_AND_READ, message=message, location=reader.rule.location)
    for program in reader.own_programs if gives else ():
        for call in _calls(program.checked.expression):
            name = call.arguments[0]
            if not isinstance(name, Literal) or name.value in gives:
                message = f"{giver.id} ({giver.location}) changes this number after this rule has read it"
                place = program.source.at(call.span.start)
                yield Problem(code=Code.WRITTEN_AND_READ, message=message, location=place)


def _amounts_named(reads: Kept) -> set[str]:
    """Return the resources whose amounts are read by name; an expression over all of them may look for others."""
    names: set[str] = set()
    for owner, kind in product(CONTAINER_LISTS, ("limits", "requests")):
        kept = reads
        for name in ("object", "spec", owner, "resources", kind):
            kept = (kept or {}).get(name)
        names.update(kept or ())
    return names


def _calls(expression: Expression) -> Iterator[Call]:
    """Yield the calls of requested() in an expression."""
    if isinstance(expression, Call) and expression.function == "requested" and expression.arguments:
        yield expression
    for child in child_nodes(expression):
        yield from _calls(child)
