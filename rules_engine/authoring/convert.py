"""Settings of other webhooks → rules.

gpuinjector's JSON configuration, or the ConfigMap that holds it → ResourceInjections, and a case for each entry. The
configuration is read as Go reads it: field names in any case, null as absent, numbers as binary floats. Resources of
gpu-webhook → a ladder.

The rules are written as YAML and then loaded from that text, so that the checked rules are the rules that will be
served.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import structs

from rules_engine.language.files import SourceFile, read_file
from rules_engine.language.schemas import validate
from rules_engine.language.yaml.documents import Dialect, read_documents
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.language.yaml.text import dump_yaml
from rules_engine.model.json.lenient import as_mapping, as_string_map
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.names import is_label
from rules_engine.model.kubernetes.quantity import Quantity, QuantityError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, did_you_mean
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.rules.injection.evaluation import SHARED_UNITS
from rules_engine.rules.injection.reading import read as read_injection
from rules_engine.rules.injection.value import GPU_TYPE_ANNOTATION, ResourceInjection
from rules_engine.rules.ladder.reading import read as read_ladder
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
    _, problems = read_rule(text, FallbackLadder.kind, read_ladder)
    return text, problems


MAX_NAME = 50
"""Characters of a GPU type or resource in a rule's name: with a number appended, a name is still a label value."""

_TYPES: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string", float: "a number"}

_ZERO, _ONE = Quantity(0), Quantity.of(1)

T = TypeVar("T", dict[str, Any], list[Any], str, float)

_GpuKey = tuple[str, str]
"""A GPU type and a GPU resource."""

_EntryFields = dict[str, Json]
"""The fields of an entry in a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The converted rules; `files` and `tests` have the text of each and of its RuleTest, by file name.

    They are empty if a finding is an error.
    """

    rules: tuple[ResourceInjection, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Problem, ...] = ()

    @property
    def text(self) -> str:
        """The rules as one YAML stream."""
        return "---\n".join(self.files.values())


def convert_file(path: Path) -> Conversion:
    """Convert a file with the configuration or with its ConfigMap."""
    problems = Problems()
    source = read_file(path, problems)
    return Conversion(findings=tuple(problems.items)) if source is None else convert_text(source.text, source.name)


def convert_text(text: str, file: str = "gpuinjector.conf") -> Conversion:
    """Convert the text of such a file; `file` is its name in findings."""
    reader = _Reader(file)
    try:
        configuration = json.loads(
            _configuration_text(SourceFile(file, text)),
            parse_int=float,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_members,
        )
    except (ValueError, RecursionError) as error:
        reader.problems.error(Code.JSON_SYNTAX, str(error), reader.location)
        return Conversion(findings=tuple(reader.problems.items))
    rules, files = [], {}
    for name, document in _rule_documents(*reader.configuration(configuration)):
        files[f"{name}.yaml"] = dump_yaml(document)
        rule, problems = read_rule(files[f"{name}.yaml"], ResourceInjection.kind, read_injection)
        for problem in problems:
            message = f"in the converted rule {name}: {problem.message}"
            reader.problems.items.append(structs.replace(problem, message=message, location=reader.location))
        rules += [rule] if rule else []
    findings = tuple(reader.problems.items)
    if reader.problems.failed:
        return Conversion(findings=findings)
    tests = {f"{rule.name}.test.yaml": dump_yaml(_rule_test(rule)) for rule in rules}
    return Conversion(rules=tuple(rules), files=files, tests=tests, findings=findings)


def _configuration_text(source: SourceFile) -> str:
    """Return the text, or if it has a ConfigMap, its value for gpuinjector. Raises ValueError if there is none."""
    if "ConfigMap" not in source.text:
        return source.text
    objects = [as_mapping(document.root.json()) for document in read_documents(source, Problems(), Dialect.MANIFESTS)]
    maps = [as_string_map(item.get("data")) for item in objects if item.get("kind") == "ConfigMap"]
    values = {key: text for data in maps for key, text in data.items()}
    texts = [text for key, text in values.items() if "gpuinjector" in key or len(values) == 1]
    if maps and len(texts) != 1:
        raise ValueError(f"not one key of the ConfigMap names gpuinjector: {', '.join(values) or 'it has no data'}")
    return texts[0] if maps else source.text


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _unique_members(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a duplicate key, whose values Go merges or replaces."""
    by_name = dict(members)
    if len(by_name) < len(members):
        [(name, _)] = Counter(name for name, _ in members).most_common(1)
        raise ValueError(f"duplicate key '{name}'")
    return by_name


class _Reader:
    """Reader of a configuration; members that cannot be converted are reported with their path and omitted."""

    def __init__(self, file: str) -> None:
        self.problems = Problems()
        self.location = Location(file, 1, 1)

    def configuration(self, value: object) -> tuple[Mapping[str, Mapping[_GpuKey, _EntryFields]], Sequence[str]]:
        """Return the entries by namespace, "" for the defaults; and the namespaces to skip."""
        fields = self._fields(value, ("resourceMap", "namespaceResourceMap", "namespaceWhiteList"), "$")
        places = {"": dict(self._entries(fields.get("resourceMap"), "$.resourceMap"))}
        for namespace, types in self._value(fields.get("namespaceResourceMap"), {}, "$.namespaceResourceMap").items():
            path = f"$.namespaceResourceMap.{namespace}"
            if self._is_namespace(namespace, path):
                places[namespace] = dict(self._entries(types, path))
        white_list = []
        for index, item in enumerate(self._value(fields.get("namespaceWhiteList"), [], "$.namespaceWhiteList")):
            path = f"$.namespaceWhiteList[{index}]"
            if self._is_namespace(name := self._value(item, "", path), path):
                white_list.append(name)
        return places, [*dict.fromkeys(white_list)]

    def _entries(self, value: object, path: str) -> Iterator[tuple[_GpuKey, _EntryFields]]:
        for gpu_type, resources in self._value(value, {}, path).items():
            if not gpu_type:
                self._warn(path, "an empty GPU type never matches a pod: it is not converted")
                continue
            for resource, entry in self._value(resources, {}, f"{path}.{gpu_type}").items():
                yield (gpu_type, resource), self._entry(entry, f"{path}.{gpu_type}.{resource}")

    def _entry(self, value: object, path: str) -> _EntryFields:
        fields = self._fields(value, ("resourceList", "annotations"), path)
        items = self._value(fields.get("resourceList"), [], f"{path}.resourceList")
        coefficients: dict[str, Json] = {}
        for index, item in enumerate(items):
            self._coefficient(item, f"{path}.resourceList[{index}]", coefficients)
        annotations: dict[str, Json] = {
            key: self._value(text, "", f"{path}.annotations.{key}")
            for key, text in self._value(fields.get("annotations"), {}, f"{path}.annotations").items()
        }
        if not (items or annotations):
            self._warn(path, "an empty entry injects nothing, and no longer conflicts with other GPU resources")
        entry = {"coefficients": coefficients, "annotations": annotations}
        return {name: dict(members) for name, members in entry.items() if members}

    def _coefficient(self, item: object, path: str, coefficients: dict[str, Json]) -> None:
        """Add the amount of a resource per GPU: an exact quantity."""
        fields = self._fields(item, ("name", "coefficient", "unit", "value"), path)
        name = self._value(fields.get("name"), "", f"{path}.name")
        unit = self._value(fields.get("unit"), "", f"{path}.unit")
        # The shortest decimal that is this float, which is what the author wrote.
        number = Decimal(repr(float(self._value(fields.get("coefficient"), 0.0, f"{path}.coefficient"))))
        if not name:
            self._error(path, "needs a name")
            return
        if "value" in fields:
            report = self._warn if "coefficient" in fields else self._error
            report(path, "'value' is never read by gpuinjector: write the amount per GPU as coefficient and unit")
        elif "coefficient" not in fields:
            self._warn(path, f"{name} has no coefficient: 0 is injected, as by gpuinjector")
        if number < 0:
            self._error(path, "a negative coefficient: gpuinjector denies the pods, or injects what no pod can have")
            return
        suffix = unit.lstrip("0")
        if suffix != unit:
            self._warn(path, f"the unit '{unit}' is appended to the number, as by gpuinjector")
        amount = f"{number.scaleb(len(unit) - len(suffix)).normalize():f}{suffix}".removeprefix("-")
        try:
            if not suffix[:1].isalpha() and suffix:
                raise QuantityError(f"the unit '{unit}' is not a suffix of a quantity")
            Quantity.parse(amount)
        except QuantityError as error:
            self._error(path, str(error))
            return
        if number != number.to_integral_value():
            rounding = "rounded the pod's total" if name in SHARED_UNITS else "truncated each container's share"
            self._warn(path, f"{amount} is now computed exactly; gpuinjector {rounding} down to whole units")
        if name in coefficients:
            self._warn(path, f"'{name}' occurs twice in this list: the last one is used, as by gpuinjector")
        coefficients[name] = amount

    def _fields(self, value: object, names: Sequence[str], path: str) -> dict[str, Any]:
        """Return the fields of a Go struct by name, without null fields."""
        fields: dict[str, Any] = {}
        by_fold = {name.casefold(): name for name in names}
        for key, member in self._value(value, {}, path).items():
            name = by_fold.get(key.casefold())
            if name is None:
                self._error(path, f"unknown field '{key}'{did_you_mean(key, names)}: gpuinjector ignores it")
            elif name in fields:
                self._error(path, f"duplicate key '{name}'")
            elif member is not None:
                if name != key:
                    self._warn(path, f"'{key}' is read as '{name}': Go's JSON reader ignores letter case")
                fields[name] = member
        return fields

    def _value(self, value: object, empty: T, path: str) -> T:
        """Return a value of the type of `empty`, which stands for null and, with an error, for other types."""
        if isinstance(value, type(empty)):
            return value
        if value is not None:
            self._error(path, f"must be {_TYPES[type(empty)]}")
        return empty

    def _is_namespace(self, name: str, path: str) -> bool:
        if not is_label(name):
            self._warn(path, f"'{name}' is not a valid namespace name and never matches: it is not converted")
        return is_label(name)

    def _error(self, path: str, message: str) -> None:
        self.problems.error(Code.GPUINJECTOR_INVALID, f"{path}: {message}", self.location)

    def _warn(self, path: str, message: str) -> None:
        self.problems.warning(Code.GPUINJECTOR_DIFFERENT, f"{path}: {message}", self.location)


def _rule_documents(
    places: Mapping[str, Mapping[_GpuKey, _EntryFields]], white_list: Sequence[str]
) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield name and document of each rule: one for each GPU type and GPU resource, in order of first entries."""
    keys = dict.fromkeys(key for entries in places.values() for key in entries)
    types = [gpu_type for gpu_type, _ in keys]
    names: set[str] = set()
    for key in keys:
        entries = {namespace: places[namespace][key] for namespace in places if key in places[namespace]}
        if not any(entries.values()):
            continue
        gpu_type, resource = key
        name = _slug(gpu_type)
        if types.count(gpu_type) > 1:
            name += f"-{_slug(resource.rpartition('/')[2])}"
        names.add(name := _free_name(name, names))
        spec: dict[str, Json] = {
            "gpuType": gpu_type,
            "gpuTypeAnnotation": GPU_TYPE_ANNOTATION,
            "gpuResource": resource,
            **({"match": {"excludeNamespaces": [*white_list]}} if white_list else {}),
            **entries.pop("", {}),
        }
        if entries:
            spec["namespaces"] = {**entries}
        elif "coefficients" not in spec:  # a rule needs one of the two fields, even if it is empty
            spec["coefficients"] = {}
        metadata: Json = {"name": name}
        yield name, {"apiVersion": API_VERSION, "kind": ResourceInjection.kind, "metadata": metadata, "spec": spec}


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if it is taken."""
    return name if name not in taken else next(free for n in count(2) if (free := f"{name}-{n}") not in taken)


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower())[:MAX_NAME].strip("-") or "gpu"


def _rule_test(rule: ResourceInjection) -> dict[str, Json]:
    """Return a RuleTest with a case for each entry: a pod with one GPU gets exactly its amounts and annotations.

    A pod in another namespace gets what the default has, or nothing.
    """
    excluded = rule.match.exclude_namespaces
    other = _free_name("default", {*rule.namespaces, *excluded})
    cases: Json = [_rule_case(rule, name) for name in (other, *rule.namespaces) if name not in excluded]
    spec: Json = {"rules": [f"{rule.name}.yaml"], "cases": cases}
    return {"apiVersion": API_VERSION, "kind": "RuleTest", "metadata": {"name": rule.name}, "spec": spec}


def _rule_case(rule: ResourceInjection, namespace: str) -> Json:
    entry = rule.entry(namespace)
    absent = rule.default or next(iter(rule.namespaces.values()))
    amounts: dict[str, Json] = {
        name: str(entry.coefficients.get(name, _ZERO).floor_to(SHARED_UNITS.get(name, _ONE)))
        for name in {**absent.coefficients, **entry.coefficients}
    }
    annotations: dict[str, Json] = {
        key: entry.annotations.get(key) for key in {**absent.annotations, **entry.annotations}
    }
    container: Json = {"name": "gpu", "resources": {"limits": {rule.gpu_resource: "1"}}}
    annotation: Json = {rule.gpu_type_annotation: rule.gpu_type}
    return {
        "name": f"one GPU in {namespace}",
        "pod": {"metadata": {"annotations": annotation}, "spec": {"containers": [container]}},
        "request": {"namespace": namespace},
        "expect": {"allowed": True, "containers": {"gpu": amounts}, "annotations": annotations},
    }
