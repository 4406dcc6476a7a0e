"""gpuinjector's JSON configuration → ResourceInjection rules, with every difference reported at its line.

The configuration is read as Go reads it: field names in any case, null as absent, the wrong type as an error. The
rules are written as YAML and then loaded from that text, so that the checked rules are the rules that will be served.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType

from rules_engine.converting.gpuinjector import MOST_GPUS, SHARED, Coefficient
from rules_engine.converting.positioned_json import JsonError, Member, Node, Number, Object, parse_json
from rules_engine.converting.rule_text import read_rule
from rules_engine.kinds.injection.reading import read
from rules_engine.kinds.injection.value import GPU_TYPE_ANNOTATION, ResourceInjection
from rules_engine.loading.files import MAX_FILE_BYTES, read_file, report_too_large
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.names import is_label
from rules_engine.model.kubernetes.quantity import MAX_EXPONENT, Quantity, QuantityError
from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.model.problems.problem import Problem, Problems, Severity, did_you_mean, sort_problems
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.sources.rule_files import has_errors
from rules_engine.sources.yaml_text import dump_yaml

MAX_NAME = 50
"""Characters of a GPU type or resource in a rule's name: with a number appended, a name is still a label value."""

_UNIT = re.compile(r"(?P<zeros>0*)(?:\.0*)?(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,3})")
"""Units, which gpuinjector appends to a whole number: zeros, then a quantity's suffix or exponent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedEntry:
    """An entry of the configuration, at `path`, with its findings.

    `rule` is the index of its rule in `Conversion.rules`; None if the entry has no effect. `namespace` is "" for a
    default.
    """

    path: str
    rule: int | None
    namespace: str
    coefficients: Mapping[str, Coefficient]
    findings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The result of a conversion.

    `documents` has the YAML of each rule, and `rules` the same rules loaded. They and `entries` are empty if a finding
    is an error. `findings` includes the findings of entries, in file order, with locations in the JSON; `sources` has
    the lines of the JSON, for snippets.
    """

    documents: tuple[str, ...] = ()
    rules: tuple[ResourceInjection, ...] = ()
    entries: tuple[ConvertedEntry, ...] = ()
    findings: tuple[Problem, ...] = ()
    sources: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def text(self) -> str:
        """The documents as one YAML stream."""
        return "---\n".join(self.documents)

    @property
    def failed(self) -> bool:
        return has_errors(self.findings)


def convert_file(path: Path) -> Conversion:
    """Convert a configuration file of at most MAX_FILE_BYTES."""
    problems = Problems()
    source = read_file(path, problems)
    if source is not None and len(source.text) > MAX_FILE_BYTES:
        report_too_large(source.name, MAX_FILE_BYTES, problems)
    if source is None or problems.items:
        return Conversion(findings=tuple(problems.items))
    return convert_text(source.text, source.name)


def convert_text(text: str, file: str = "gpuinjector.conf") -> Conversion:
    """Convert the text of a configuration file to rules; `file` is its name in findings."""
    sources = {file: tuple(text.split("\n"))}
    try:
        root = parse_json(text, file)
    except JsonError as error:
        return Conversion(findings=(error.problem,), sources=sources)
    findings = _Findings()
    configuration = _Reader(findings).configuration(root)
    drafts = _draft_rules(configuration)
    rules = [rule for draft in drafts if (rule := _load_draft(draft, findings))]
    if findings.failed:
        return Conversion(findings=findings.in_order(), sources=sources)
    return Conversion(
        documents=tuple([draft.text for draft in drafts]),
        rules=tuple(rules),
        entries=tuple(_convert_entries(configuration, [draft.key for draft in drafts])),
        findings=findings.in_order(),
        sources=sources,
    )


def _convert_entries(configuration: "_Configuration", converted: Sequence["_GpuKey"]) -> Iterator[ConvertedEntry]:
    """Yield all entries: the defaults, then the entries of namespaces."""
    index = {key: number for number, key in enumerate(converted)}
    places = {"": configuration.defaults, **configuration.by_namespace}
    for namespace, entries in places.items():
        above = f"namespaceResourceMap.{namespace}" if namespace else "resourceMap"
        for key, entry in entries.items():
            yield ConvertedEntry(
                path=".".join((above, *key)),
                rule=index.get(key),
                namespace=namespace,
                coefficients=entry.amounts,
                findings=entry.findings,
            )


class _Findings:
    """Problems, located at nodes of the JSON."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def error(self, code: Code, message: str, node: Node) -> None:
        """Add an error that must be fixed before the conversion."""
        self._add(code, message, node, Severity.ERROR)

    def warning(self, code: Code, message: str, node: Node) -> None:
        """Add a warning about behaviour that changes, or that differs from what the configuration suggests."""
        self._add(code, message, node, Severity.WARNING)

    def rule_problem(self, problem: Problem, node: Node) -> None:
        """Add a problem of a converted rule."""
        self._add(problem.code, f"in the converted rule: {problem.message}", node, problem.severity)

    def _add(self, code: ProblemCode, message: str, node: Node, severity: Severity) -> None:
        self._problems.append(
            Problem(code=code, message=message, location=node.location, length=node.length, severity=severity)
        )

    @property
    def failed(self) -> bool:
        return has_errors(self._problems)

    def __len__(self) -> int:
        return len(self._problems)

    def after(self, number: int) -> tuple[Problem, ...]:
        """Return the problems after the first `number`, in file order."""
        return sort_problems(self._problems[number:])

    def in_order(self) -> tuple[Problem, ...]:
        return self.after(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Quantities per GPU by resource, and annotations. `amounts`: the quantities as gpuinjector reads them."""

    place: Node
    coefficients: Mapping[str, str]
    amounts: Mapping[str, Coefficient]
    annotations: Mapping[str, str]
    findings: tuple[Problem, ...]

    def __bool__(self) -> bool:
        return bool(self.coefficients or self.annotations)

    def fields(self) -> dict[str, Json]:
        """Return the fields of the entry in a rule."""
        fields: dict[str, Json] = {}
        if self.coefficients:
            fields["coefficients"] = dict(self.coefficients)
        if self.annotations:
            fields["annotations"] = dict(self.annotations)
        return fields


_GpuKey = tuple[str, str]
"""A GPU type and a GPU resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """The configuration in its order in the file."""

    defaults: Mapping[_GpuKey, _Entry]
    by_namespace: Mapping[str, Mapping[_GpuKey, _Entry]]
    white_list: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """The draft of a rule: its document, and the entry at which its problems are reported."""

    key: _GpuKey
    place: Node
    text: str


class _Reader:
    """Reader of a configuration from JSON nodes; malformed members are reported and omitted."""

    def __init__(self, findings: _Findings) -> None:
        self._findings = findings

    def configuration(self, root: Node) -> _Configuration:
        fields = self._fields(root, ("resourceMap", "namespaceResourceMap", "namespaceWhiteList"), "the configuration")
        by_namespace = {
            member.name: self._types(member.value)
            for member in self._members(fields.get("namespaceResourceMap"), "namespaceResourceMap")
            if self._is_namespace(member.name, member.key)
        }
        white_list = [
            name
            for item in self._items(fields.get("namespaceWhiteList"))
            if (name := self._string(item, "a namespace")) is not None and self._is_namespace(name, item)
        ]
        return _Configuration(
            defaults=self._types(fields.get("resourceMap")),
            by_namespace=by_namespace,
            white_list=tuple(dict.fromkeys(white_list)),
        )

    def _types(self, node: Node | None) -> Mapping[_GpuKey, _Entry]:
        entries: dict[_GpuKey, _Entry] = {}
        for gpu_type in self._members(node, "a map of GPU types"):
            if not gpu_type.name:
                message = "an empty GPU type never matches a pod: it is not converted"
                self._findings.warning(Code.GPUINJECTOR_NEVER_MATCHES, message, gpu_type.key)
                continue
            for resource in self._members(gpu_type.value, "a map of GPU resources"):
                entries[gpu_type.name, resource.name] = self._entry(resource)
        return entries

    def _entry(self, member: Member) -> _Entry:
        previous = len(self._findings)
        fields = self._fields(member.value, ("resourceList", "annotations"), "an entry")
        coefficients: dict[str, str] = {}
        amounts: dict[str, Coefficient] = {}
        items = self._items(fields.get("resourceList"))
        for item in items:
            self._coefficient(item, coefficients, amounts)
        annotations = {
            annotation.name: self._string(annotation.value, "an annotation") or ""
            for annotation in self._members(fields.get("annotations"), "annotations")
        }
        if not (items or annotations):
            message = "an empty entry injects nothing, and no longer causes a conflict of different GPU resources"
            self._findings.warning(Code.GPUINJECTOR_EMPTY_ENTRY, message, member.key)
        return _Entry(
            place=member.key,
            coefficients=coefficients,
            amounts=amounts,
            annotations=annotations,
            findings=self._findings.after(previous),
        )

    def _coefficient(self, item: Node, coefficients: dict[str, str], amounts: dict[str, Coefficient]) -> None:
        fields = self._fields(item, ("name", "coefficient", "unit", "value"), "an item of resourceList")
        name = self._text(fields, "name")
        place = fields.get("name", item)
        if not name:
            self._findings.error(Code.GPUINJECTOR_NO_NAME, "an item of resourceList needs 'name'", place)
            return
        if "value" in fields:
            message = "'value' is never read by gpuinjector: write the amount per GPU as coefficient and unit"
            if "coefficient" not in fields:  # a typo, as nothing would be injected
                self._findings.error(Code.GPUINJECTOR_UNKNOWN_FIELD, message, fields["value"])
                return
            self._findings.warning(Code.GPUINJECTOR_UNKNOWN_FIELD, message, fields["value"])
        amount = _Amount(name, fields.get("coefficient", item), fields.get("unit"), self._findings)
        number, unit = self._number(fields, "coefficient"), self._text(fields, "unit")
        quantity = amount.text(number, unit)
        if quantity is None:
            return
        if name in coefficients:
            message = f"'{name}' occurs twice in this list: the last one is used, as by gpuinjector"
            self._findings.warning(Code.GPUINJECTOR_DUPLICATE_NAME, message, place)
        coefficients[name] = quantity
        amounts[name] = Coefficient(number.text if number else "0", unit)

    def _fields(self, node: Node, names: Sequence[str], owner: str) -> dict[str, Node]:
        """Return the fields of a Go struct by name, without null fields."""
        fields: dict[str, Node] = {}
        by_fold = {name.casefold(): name for name in names}
        for member in self._members(node, owner):
            name = by_fold.get(member.name.casefold())
            if name is None:
                near = did_you_mean(member.name, names)
                message = f"{owner} has no field '{member.name}'{near}: gpuinjector ignores it"
                self._findings.error(Code.GPUINJECTOR_UNKNOWN_FIELD, message, member.key)
            elif name in fields:
                self._findings.error(Code.GPUINJECTOR_DUPLICATE_KEY, f"duplicate key '{name}'", member.key)
            elif member.value.value is not None:
                if name != member.name:
                    message = f"'{member.name}' is read as '{name}': Go's JSON reader ignores letter case"
                    self._findings.warning(Code.GPUINJECTOR_LETTER_CASE, message, member.key)
                fields[name] = member.value
        return fields

    def _members(self, node: Node | None, owner: str) -> Iterator[Member]:
        if node is None or node.value is None:
            return
        if not isinstance(node.value, Object):
            self._findings.error(Code.GPUINJECTOR_WRONG_TYPE, f"{owner} must be an object", node)
            return
        seen: set[str] = set()
        for member in node.value.members:
            if member.name in seen:
                self._findings.error(Code.GPUINJECTOR_DUPLICATE_KEY, f"duplicate key '{member.name}'", member.key)
                continue
            seen.add(member.name)
            yield member

    def _items(self, node: Node | None) -> tuple[Node, ...]:
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            self._findings.error(Code.GPUINJECTOR_WRONG_TYPE, "must be a list", node)
            return ()
        return node.value

    def _string(self, node: Node, owner: str) -> str | None:
        """Read a string; "" for null, None if it is not a string."""
        if node.value is None:
            return ""
        if not isinstance(node.value, str):
            self._findings.error(Code.GPUINJECTOR_WRONG_TYPE, f"{owner} must be a string", node)
            return None
        return node.value

    def _is_namespace(self, name: str, node: Node) -> bool:
        if is_label(name):
            return True
        message = f"'{name}' is not a valid namespace name and never matches: it is not converted"
        self._findings.warning(Code.GPUINJECTOR_NEVER_MATCHES, message, node)
        return False

    def _text(self, fields: Mapping[str, Node], name: str) -> str:
        return (self._string(fields[name], f"'{name}'") or "") if name in fields else ""

    def _number(self, fields: Mapping[str, Node], name: str) -> Number | None:
        """Read a number; None if it is absent, 0 if it is of another type, which is reported."""
        node = fields.get(name)
        if node is None:
            return None
        if not isinstance(node.value, Number):
            self._findings.error(Code.GPUINJECTOR_WRONG_TYPE, f"'{name}' must be a number", node)
            return Number("0")
        return node.value


class _Amount:
    """A coefficient and its unit, converted to one exact quantity."""

    def __init__(self, resource: str, place: Node, unit_place: Node | None, findings: _Findings) -> None:
        self._resource = resource
        self._place = place
        self._unit_place = unit_place or place
        self._findings = findings

    def text(self, number: Number | None, unit: str) -> str | None:
        """Return the quantity for the rule; None, with a finding, if it is invalid."""
        if number is None:
            message = f"{self._resource} has no coefficient: 0 is injected, as by gpuinjector"
            self._findings.warning(Code.GPUINJECTOR_NO_COEFFICIENT, message, self._place)
        match = _UNIT.fullmatch(unit)
        if match is None:
            self._findings.error(Code.GPUINJECTOR_BAD_UNIT, f"'{unit}' is not a unit of a quantity", self._unit_place)
            return None
        value = Decimal(number.text if number else "0")
        if value < 0:
            effect = (
                f"denies every pod with '{self._resource} too large'"
                if self._resource in SHARED
                else f"injects the negative amount of {self._resource}, and the API server rejects the pod"
            )
            message = f"negative coefficient: gpuinjector {effect}"
            self._findings.error(Code.GPUINJECTOR_NEGATIVE, message, self._place)
            return None
        if value and not -MAX_EXPONENT <= value.adjusted() <= MAX_EXPONENT:
            self._findings.error(Code.GPUINJECTOR_BAD_QUANTITY, f"{value} is out of range for a quantity", self._place)
            return None
        zeros, suffix = match["zeros"], match["suffix"]
        digits = _format_decimal(value, len(zeros))
        if zeros:
            message = f"the unit '{unit}' is appended to the number: {value} becomes {digits}{suffix}"
            self._findings.warning(Code.GPUINJECTOR_GLUED_UNIT, message, self._unit_place)
        text = digits + suffix
        try:
            quantity = Quantity.parse(text)
        except QuantityError as error:
            self._findings.error(Code.GPUINJECTOR_BAD_QUANTITY, str(error), self._place)
            return None
        rounded = quantity.nanos != Fraction(digits) * _unit_nanos(suffix)
        self._compare(value, text, quantity, rounded=rounded)
        if Coefficient(str(value), unit).amounts(self._resource, (MOST_GPUS,), Quantity(0)) is None:
            message = f"{text} for each of {MOST_GPUS} GPUs exceeds gpuinjector's 64-bit integers: now it is exact"
            self._findings.warning(Code.GPUINJECTOR_OVERFLOW, message, self._place)
        return text

    def _compare(self, value: Decimal, text: str, quantity: Quantity, *, rounded: bool) -> None:
        """Report an amount for which exact arithmetic differs from gpuinjector's."""
        if rounded:
            message = f"{text} has more than nine decimals: it is rounded up, to {quantity}"
            self._findings.warning(Code.GPUINJECTOR_ROUNDED, message, self._place)
        elif value != value.to_integral_value():
            rounding = (
                "rounded the pod's total down" if self._resource in SHARED else "truncated each container's share"
            )
            message = f"{text} is now computed exactly; gpuinjector used binary floats and {rounding} to whole units"
            self._findings.warning(Code.GPUINJECTOR_EXACT, message, self._place)


def _format_decimal(value: Decimal, zeros: int) -> str:
    """Format a non-negative number times 10^`zeros`, without exponent."""
    sign, digits, exponent = value.as_tuple()
    shifted = Decimal((sign, digits, int(exponent) + zeros))
    text = format(shifted, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"


def _unit_nanos(suffix: str) -> Fraction:
    """Return the exact nanos of a unit, which `Quantity` would round."""
    if suffix[1:] and suffix[0] in "eE" and suffix != "Ei":
        return Fraction(10) ** (int(suffix[1:]) + 9)
    return Fraction(Quantity.parse(f"1{suffix}").nanos)


def _draft_rules(configuration: _Configuration) -> list[_Draft]:
    """Draft one rule for each GPU type and GPU resource, in the order of first occurrence."""
    everywhere = [configuration.defaults, *configuration.by_namespace.values()]
    keys = list(dict.fromkeys(key for entries in everywhere for key in entries))
    names: set[str] = set()
    drafts = []
    for key in keys:
        same_key = [entries[key] for entries in everywhere if key in entries]
        if any(same_key):
            name = _rule_name(key, keys, names)
            names.add(name)
            document = _rule_document(name, key, configuration)
            drafts.append(_Draft(key=key, place=same_key[0].place, text=dump_yaml(document)))
    return drafts


def _rule_document(name: str, key: _GpuKey, configuration: _Configuration) -> dict[str, Json]:
    gpu_type, gpu_resource = key
    default = configuration.defaults.get(key)
    spec: dict[str, Json] = {
        "gpuType": gpu_type,
        "gpuTypeAnnotation": GPU_TYPE_ANNOTATION,
        "gpuResource": gpu_resource,
    }
    if configuration.white_list:
        spec["match"] = {"excludeNamespaces": list(configuration.white_list)}
    if default:
        spec.update(default.fields())
    namespaces: dict[str, Json] = {
        namespace: entries[key].fields() for namespace, entries in configuration.by_namespace.items() if key in entries
    }
    if namespaces:
        spec["namespaces"] = namespaces
    elif "coefficients" not in spec:  # a rule needs one of the two fields, even if it is empty
        spec["coefficients"] = {}
    return {"apiVersion": API_VERSION, "kind": ResourceInjection.kind, "metadata": {"name": name}, "spec": spec}


def _rule_name(key: _GpuKey, keys: Sequence[_GpuKey], taken: Set[str]) -> str:
    """Return the GPU type, then its resource if the type has several, then a number if the name is taken."""
    gpu_type, gpu_resource = key
    several = [each for each, _ in keys].count(gpu_type) > 1
    name = f"{_slug(gpu_type)}-{_slug(gpu_resource.rpartition('/')[2])}" if several else _slug(gpu_type)
    return next(each for each in chain([name], (f"{name}-{number}" for number in count(2))) if each not in taken)


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower())[:MAX_NAME].strip("-") or "gpu"


def _load_draft(draft: _Draft, findings: _Findings) -> ResourceInjection | None:
    """Load the rule like any file; its problems are reported at its entry in the JSON."""
    rule, problems = read_rule(draft.text, ResourceInjection.kind, read)
    for problem in problems:
        findings.rule_problem(problem, draft.place)
    return rule
