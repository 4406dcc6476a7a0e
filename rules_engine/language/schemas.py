"""The JSON Schemas, and the validation of documents with located problems."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from rules_engine.language import remedies
from rules_engine.language.yaml import nodes
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath, json_type
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.problems.source import Location, truncate

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from referencing import Registry

SCHEMAS = FilePath(__file__).parent.parent / "schemas"
"""The folder of the JSON Schemas: `KIND.json` for each kind, and `COMMON` with their shared definitions."""

COMMON = "common.json"

_EXPRESSION = "CEL expression"
_SELECTOR = "label selector"
_QUANTITY = "quantity"
_AMOUNTS = "amounts"
_DURATION = "duration"
"""Titles of types in which a slip has its own remedy."""

_TYPE = re.compile(r"[^#]*#/\$defs/([^/]+)")
"""A reference to a type, in any file; a longer one is to a field."""


def schema(kind: str, folder: FilePath = SCHEMAS) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of document, with all definitions that it refers to."""
    return _Bundle(_read_schema(folder / f"{kind}.json")).whole()


def _read_schema(file: FilePath) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


@lru_cache
def _common_registry() -> "Registry[Any]":
    """Return a registry of common.json, the only schema that others may refer to; nothing is retrieved."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    empty: Registry[Any] = Registry()
    return DRAFT202012.create_resource(_read_schema(SCHEMAS / COMMON)) @ empty


class _Bundle:
    """A schema with its references to other files resolved.

    A reference to a type stays, and the type becomes a definition. A field replaces the reference to it, with the
    reference's own description, examples and default. A resolver is Any, since its class has no public name.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        from referencing.jsonschema import DRAFT202012

        self._types: dict[str, Any] = {}
        self._root = {name: part for name, part in root.items() if name != "$defs"}
        self._resolver = _common_registry().resolver_with_root(DRAFT202012.create_resource(root))

    def whole(self) -> dict[str, Any]:
        """Return the schema with its definitions in the order of their names."""
        root: dict[str, Any] = self._resolve(self._root, self._resolver)
        return {**root, "$defs": dict(sorted(self._types.items()))}

    def _resolve(self, part: Any, resolver: Any) -> Any:
        if isinstance(part, list):
            return [self._resolve(item, resolver) for item in part]
        if not isinstance(part, dict):
            return part
        resolved = {name: self._resolve(item, resolver) for name, item in part.items()}
        reference = resolved.pop("$ref", None)
        if reference is None:
            return resolved
        type_name = _TYPE.fullmatch(reference)
        if type_name is None:
            field = resolver.lookup(reference)
            return {**self._resolve(field.contents, field.resolver), **resolved}
        name = type_name[1]
        if name not in self._types:
            # First, so that a type may refer to itself.
            self._types[name] = {}
            definition = resolver.lookup(reference)
            self._types[name] = self._resolve(definition.contents, definition.resolver)
        return {"$ref": f"#/$defs/{name}", **resolved}


@lru_cache
def _quick_test(kind: str, folder: FilePath) -> Callable[[Json], bool]:
    # Imported on first use, as jsonschema is.
    from jsonschema_rs import Draft202012Validator, Registry

    common, root = (
        json.loads(file.read_text(encoding="utf-8"), object_hook=_explicit_spaces)
        for file in (SCHEMAS / COMMON, folder / f"{kind}.json")
    )
    return Draft202012Validator(root, registry=Registry([(COMMON, common)]), offline=True).is_valid


_NO_SPACE = r"[^\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""Python's `\\S`, spelled out: Rust's regular expressions have another set of spaces."""


def _explicit_spaces(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema with a pattern that means the same to Rust and to Python."""
    pattern = part.get("pattern")
    if not isinstance(pattern, str):
        return part
    return {**part, "pattern": pattern.replace(r"[\s\S]", "(?s:.)").replace(r"\S", _NO_SPACE)}


def _conforms(kind: str, folder: FilePath, value: Json) -> bool:
    """Return True for a valid document; a quick test, since jsonschema takes a millisecond."""
    try:
        return _quick_test(kind, folder)(value)
    except ValueError:
        # Text with a lone surrogate, or a key that is not text, which Rust does not have: jsonschema decides.
        return False


@cache
def _compile_pattern(wanted: str) -> re.Pattern[str]:
    """Return a pattern of JSON Schema, where "$" is the very end (ECMA 262); Python's also stands before a line end."""
    return re.compile(re.sub(r"\$$", r"\\Z", wanted))


@lru_cache
def _validator_class() -> Any:
    # Imported on first use: this import takes longer than all other imports of a command.
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(_: Any, wanted: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not _compile_pattern(wanted).search(instance):
            yield ValidationError("no match")

    def required(_: Any, wanted: Sequence[str], instance: Any, __: Any) -> Iterator[ValidationError]:
        # One error for all missing fields; their names are derived from the instance.
        if isinstance(instance, dict) and not instance.keys() >= set(wanted):
            yield ValidationError("incomplete")

    return extend(Draft202012Validator, {"pattern": pattern, "required": required})  # type: ignore[no-untyped-call]


@lru_cache
def _kind_validator(kind: str, folder: FilePath) -> "_Validator":
    return _Validator(schema(kind, folder))


class _Validator:
    """A schema and all of its types."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._validator = _validator_class()(whole, registry=_common_registry())

    def errors(self, instance: Json) -> Iterator["ValidationError"]:
        errors: Iterator[ValidationError] = self._validator.iter_errors(instance)
        return errors

    def accepts(self, part: Mapping[str, Any], instance: Json) -> bool:
        """Return True if a part of the schema accepts a value."""
        return bool(_validator_class()({**part, "$defs": self._whole["$defs"]}).is_valid(instance))

    def resolve_type(self, part: Any) -> Mapping[str, Any]:
        """Return a part of the schema merged with the type that it refers to; empty if it accepts everything."""
        if not isinstance(part, Mapping):
            return {}
        name = str(part.get("$ref", "")).rpartition("/")[2]
        return {**self._whole["$defs"].get(name, {}), **part}

    def at(self, path: JsonPath) -> Mapping[str, Any]:
        """Return the schema of the value at a path, empty if it has none."""
        here = self.resolve_type(self._whole)
        for step in path:
            if isinstance(step, int):
                here = self.resolve_type(here.get("items"))
            else:
                here = self.resolve_type(here.get("properties", {}).get(step, here.get("additionalProperties")))
        return here


def validate(kind: str, root: nodes.MapNode, problems: Problems, folder: FilePath = SCHEMAS) -> nodes.MapNode:
    """Report violations of the kind's schema; return the document without them, so that the rest can be checked."""
    value = root.json()
    if _conforms(kind, folder, value) and not any(node.surprise for _, node in walk_scalars(root)):
        return root
    validator = _kind_validator(kind, folder)
    ambiguous = dict(_ambiguous_values(root, validator))
    faults = [_Fault(error, root, validator) for error in validator.errors(value)]
    faults = [fault for fault in faults if fault.path not in ambiguous]
    reported: set[Location] = set()
    for code, message, place in ambiguous.values():
        problems.error(code, message, place)
    for fault in sorted(faults, key=lambda fault: fault.keyword != "pattern"):
        for code, message, node in fault.problems():
            # Text that is too long and has the wrong form is one problem.
            if code is not Code.WRONG_FORM or node.location not in reported:
                problems.error(code, message, node)
                reported.add(node.location)
    invalid = frozenset(path for fault in faults for path in fault.invalid_paths())
    return nodes.remove_paths(root, invalid | ambiguous.keys())


def _ambiguous_values(root: nodes.MapNode, validator: _Validator) -> Iterator[tuple[JsonPath, "SchemaViolation"]]:
    """Yield the path of each value that YAML parsers read differently, with the spellings that its field accepts.

    For a field without a schema, the parser has reported the value; without an accepted spelling, the schema does.
    """
    for path, node in walk_scalars(root):
        surprise, part = node.surprise, validator.at(path)
        if surprise is not None and part:
            spellings = surprise.spellings
            if part.get("title") == _EXPRESSION:
                spellings = tuple((f'"{text}"', text) for text, value in spellings if isinstance(value, bool))
            accepted = [spelling for spelling in spellings if validator.accepts(part, spelling[1])]
            if part.get("title") == _QUANTITY:
                # Its text is read further, as strictly as a number.
                accepted = [spelling for spelling in accepted if not isinstance(spelling[1], str)]
            if accepted:
                yield path, (surprise.code, surprise.message(accepted), node)


_TYPES = {
    "string": "text",
    "object": "a map",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_GIVEN = {"a string": "text", "an object": "a map", "null": "nothing"}

SchemaViolation = tuple[Code, str, nodes.YamlNode]
"""A code, a message and the node of a problem."""


class _Fault:
    """One error of the validator, in the terms of rule files."""

    def __init__(self, error: "ValidationError", root: nodes.MapNode, validator: _Validator) -> None:
        self._validator = validator
        self.keyword = str(error.validator)
        self._wanted: Any = error.validator_value
        self._schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
        self._instance: Any = error.instance
        self.path: JsonPath = tuple(error.absolute_path)
        self._of_key = "propertyNames" in error.absolute_schema_path
        self._root = root
        self._node = nodes.find_node(root, self.path)
        self._owner = self._find_owner(root)

    def _find_owner(self, root: nodes.MapNode) -> nodes.YamlNode:
        """Return the key of the value; for an item, the item; for the document, its first key."""
        if not self.path or isinstance(self.path[-1], int):
            return nodes.first_key(self._node)
        above = nodes.find_node(root, self.path[:-1])
        key = above.key(self.path[-1]) if isinstance(above, nodes.MapNode) else None
        return key or self._node

    def problems(self) -> Iterator[SchemaViolation]:
        match self.keyword:
            case "additionalProperties":
                yield from self._unknown()
            case "required":
                yield from self._missing()
            case "type":
                yield self._wrong_type()
            case "enum":
                meant = spelling_hint(self._text.strip(remedies.QUOTES), self._wanted)
                listed = f"is not one of {', '.join(self._wanted)}" if len(self._wanted) > 1 else "is not possible here"
                yield Code.WRONG_VALUE, f"{self._value_text} {listed}{meant}", self._node
            case "pattern" | "maxLength" | "minLength":
                yield self._wrong_form()
            case "minimum" | "maximum" if isinstance(self._instance, float) and not self._instance.is_integer():
                # Already reported as not a whole number.
                return
            case "minimum" | "maximum":
                bound = "less" if self.keyword == "minimum" else "more"
                yield Code.WRONG_VALUE, f"{self._name} cannot be {bound} than {self._wanted}", self._node
            case "anyOf" | "oneOf" if isinstance(self._instance, dict):
                yield self._alternatives()
            case "anyOf" | "oneOf" | "const":
                # A value that is not a map has the wrong type; apiVersion was checked before the schema was chosen.
                return
            case _:
                yield self._wrong_count()

    def invalid_paths(self) -> Iterator[JsonPath]:
        """Yield the paths of values that cannot be read."""
        match self.keyword:
            case "additionalProperties":
                yield from ((*self.path, name) for name in self._extras())
            case "required":
                # A document without its spec still has a name, and a spec without a field others.
                if len(self.path) > 1:
                    yield self.path
            case "anyOf" | "oneOf" | "minimum" | "maximum" | "minProperties" | "maxProperties":
                return
            case _:
                yield (*self.path, self._instance) if self._of_key else self.path

    @property
    def _name(self) -> str:
        step = self.path[-1]
        return f"item {step + 1} of {self.path[-2]}" if isinstance(step, int) else step

    @property
    def _value_text(self) -> str:
        return (
            f"'{truncate(self._node.source.text)}'"
            if isinstance(self._node, nodes.ScalarNode)
            else json_type(self._instance)
        )

    @property
    def _text(self) -> str:
        return self._node.source.text if isinstance(self._node, nodes.ScalarNode) else ""

    def _accepts(self, instance: Json) -> bool:
        return self._validator.accepts(self._schema, instance)

    @property
    def _title(self) -> str:
        return str(self._schema.get("title", self.path[-1] if self.path else "this"))

    def _extras(self) -> list[str]:
        return [name for name in self._instance if name not in self._schema.get("properties", ())]

    def _unknown(self) -> Iterator[SchemaViolation]:
        fields = self._schema.get("properties", {})
        selector = ""
        if self._title == _SELECTOR and isinstance(self._node, nodes.MapNode):
            selector = remedies.for_labels(self._node, fields)
        if selector:
            first = self._extras()[0]
            node = self._node if self._node.length > 1 else self._key(first)
            # In a flow map the remedy replaces the whole, in a block its lines.
            remedy = selector if self._node.length > 1 else selector[1:-1]
            message = f"{self._title} has no field '{truncate(first)}'{remedies.remedy_clause(remedy)}"
            yield Code.UNKNOWN_FIELD, message, node
            return
        for name in self._extras():
            opposite = remedies.for_verdict(name, self._instance[name], fields)
            hint = (
                remedies.remedy_clause(opposite or remedies.for_missing_space(name, fields))
                or spelling_hint(name, fields)
                or self._home(name)
            )
            yield Code.UNKNOWN_FIELD, f"{self._title} has no field '{truncate(name)}'{hint}", self._key(name)

    def _home(self, name: str) -> str:
        """Return a clause with the part of the document that has this field."""
        for parent, part in self._schema.get("properties", {}).items():
            if name in self._validator.resolve_type(part).get("properties", {}):
                value = self._instance[name]
                scalar = parent not in self._instance and not isinstance(value, list | dict)
                return (
                    remedies.remedy_clause(f"{parent}: {{{name}: {remedies.yaml_flow(value)}}}")
                    if scalar
                    else _below_clause(parent)
                )
        return _below_clause("spec") if name in self._validator.at(("spec",)).get("properties", {}) else ""

    def _missing(self) -> Iterator[SchemaViolation]:
        # A misspelt field is reported once, as unknown.
        fields = self._schema.get("properties", ())
        misspelt = "".join(
            spelling_hint(name, fields) + self._home(name) + remedies.for_missing_space(name, fields)
            for name in self._extras()
        )
        for name in self._wanted:
            if name not in self._instance and not re.search(rf"'{name}'|\b{name}: ", misspelt):
                yield Code.MISSING_FIELD, f"{self._title} needs '{name}'", self._owner

    def _wrong_type(self) -> SchemaViolation:
        wanted = [self._wanted] if isinstance(self._wanted, str) else list(self._wanted)
        expected = " or ".join(_TYPES[name] for name in wanted)
        if self._instance is None:
            return Code.WRONG_TYPE, f"{self._name} has no value: it must be {expected}", self._owner
        actual = json_type(self._instance)
        if isinstance(self._instance, float) and isinstance(self._node, nodes.ScalarNode):
            actual = truncate(self._node.source.text)
        message = f"{self._name} must be {expected}, not {_GIVEN.get(actual, actual)}"
        if "object" in wanted and not isinstance(self._instance, dict | list):
            moved = self._file() or self._container()
            if moved:
                return Code.WRONG_TYPE, f"{message}{moved}", self._owner
        if isinstance(self._node, nodes.MapNode) and "array" in wanted and self._node.length == 1:
            key = nodes.first_key(self._node)
            return Code.WRONG_TYPE, f"{message}{self._dash(key)}", key
        return Code.WRONG_TYPE, f"{message}{self._replacement(wanted)}", self._node

    def _file(self) -> str:
        """Return a clause with the field for a file name, if a text stands where a map or a file is expected."""
        name = f"{self._name}File"
        beside = name in self._validator.at(self.path[:-1]).get("properties", {})
        return remedies.remedy_clause(f"{name}: {remedies.yaml_scalar(self._text)}") if beside and self._text else ""

    def _container(self) -> str:
        """Return a clause for an amount that lacks the name of its container above it."""
        if self._title != _AMOUNTS or not self._accepts({self._name: self._instance}):
            return ""
        amounts, container = nodes.find_node(self._root, self.path[:-1]), remedies.only_container(self._root, self.path)
        if container and isinstance(amounts, nodes.MapNode) and len(amounts.members) == 1:
            return remedies.remedy_clause(
                f"{remedies.yaml_scalar(container)}: {{{self._name}: {remedies.yaml_flow(self._instance)}}}"
            )
        return ": it belongs below the name of a container"

    def _dash(self, key: nodes.YamlNode) -> str:
        """Return a clause for a block map where a list is expected."""
        text = key.source.text if isinstance(key, nodes.ScalarNode) else ""
        name = re.sub(r"^[-–—]\s*", "", text)
        item = self._validator.resolve_type(self._schema.get("items")).get("properties", {})
        if name not in item:
            return remedies.remedy_clause(remedies.for_list(self._node, self._accepts))
        has_more = isinstance(self._node, nodes.MapNode) and len(self._node.members) > 1
        return remedies.remedy_clause(
            f"- {name}{', and indent the lines of the same item by two more' if has_more else ''}"
        )

    def _replacement(self, wanted: Sequence[str]) -> str:
        """Return a clause with the probable value."""
        unquoted = " without quotes" if isinstance(self._node, nodes.ScalarNode) and self._node.quoted else ""
        fields = self._schema.get("properties", {})
        remedy = ""
        for name in wanted:
            match name:
                case "string" if self._title == _EXPRESSION and isinstance(self._instance, bool):
                    remedy = f'"{str(self._instance).lower()}"'
                case "string" if self._text and self._title.startswith(_DURATION):
                    remedy = "a duration such as 90s"
                case "string" if self._text and self._accepts(self._text):
                    remedy = f'"{truncate(self._text)}"'
                case "boolean":
                    remedy = remedies.for_boolean(self._node)
                case "integer" | "number":
                    remedy = remedies.for_number(self._node)
                case "array":
                    remedy, unquoted = remedies.for_list(self._node, self._accepts), ""
                case "object" if self._title.startswith(_DURATION):
                    continue
                case "object":
                    mapping = remedies.for_missing_space(self._text, fields) or remedies.for_map(
                        self._node,
                        self._accepts,
                        self._schema.get("required", [name for name in fields if name == "file"]),
                    )
                    remedy, unquoted = mapping, ""
        return remedies.remedy_clause(f"{remedy}{unquoted}" if remedy else "")

    def _wrong_form(self) -> SchemaViolation:
        text = self._instance
        node = self._key(text) if self._of_key else self._node
        if self.keyword == "maxLength":
            return Code.WRONG_FORM, f"a {self._title} has at most {self._wanted} characters, not {len(text)}", node
        if not text.strip():
            return Code.WRONG_FORM, f"the {self._title} is empty", node
        hint = next((f" such as {example}" for example in self._schema.get("examples", ())), "")
        remedy = remedies.for_text(text, self._title, self._accepts)
        if "resource" in self._title:
            hint = _resource_hint(text, remedy) or hint
        elif self._title.startswith(_DURATION) and text.startswith("-"):
            hint = ": it cannot be negative"
        elif self._of_key and self._title == "namespace name" and "*" in text:
            hint = ": globs are for match.namespaces"
        elif "{{" in text:
            hint = f": templates are not expanded{', use messageExpression' if self._title == 'message' else ''}"
        hint = f"{hint}, write {remedy}" if ":" in hint and remedy else remedies.remedy_clause(remedy) or hint
        article = "an" if self._title[0] in "aeiou" else "a"
        return Code.WRONG_FORM, f"'{truncate(text)}' is not {article} {self._title}{hint}", node

    def _key(self, name: str) -> nodes.YamlNode:
        key = self._node.key(name) if isinstance(self._node, nodes.MapNode) else None
        return key or self._node

    def _alternatives(self) -> SchemaViolation:
        fields = [name for option in self._wanted for name in option["required"]]
        listed = " or ".join(f"'{name}'" for name in fields)
        present = [name for name in fields if name in self._instance]
        if present:
            both = " and ".join(f"'{name}'" for name in present)
            return Code.CONFLICTING_FIELDS, f"{both} cannot be used together", self._key(present[1])
        return Code.MISSING_FIELD, f"{self._title} needs {listed}", self._owner

    def _wrong_count(self) -> SchemaViolation:
        match self.keyword:
            case "minItems":
                return Code.WRONG_COUNT, f"{self._name} is empty: it needs at least {self._wanted}", self._owner
            case "minProperties":
                return Code.WRONG_COUNT, f"{self._name} must not be empty", self._owner
            case "maxProperties" if self._wanted == 1:
                return (
                    Code.CONFLICTING_FIELDS,
                    "'file' cannot be combined with other fields: it defines the whole cluster",
                    self._key("file"),
                )
            case "maxItems" | "maxProperties":
                counted = f"{len(self._instance)} {'items' if self.keyword == 'maxItems' else 'keys'}"
                return Code.WRONG_COUNT, f"{self._name} has {counted}, of at most {self._wanted}", self._owner
        repeated = next(index for index, value in enumerate(self._instance) if value in self._instance[:index])
        return Code.WRONG_COUNT, f"{self._name} has the same item twice", nodes.find_node(self._node, (repeated,))


def _resource_hint(text: str, remedy: str) -> str:
    """Return a hint for common mistakes in resource names; a remedy may follow.

    Source: k8s.io/kubernetes/pkg/apis/core/v1/helper (IsExtendedResourceName).
    """
    domain = text.partition("/")[0]
    if domain.startswith("requests.") and remedy:
        return ": 'requests.' is for quotas"
    if domain.endswith("kubernetes.io"):
        return ": kubernetes.io is for Kubernetes' own resources, which no device plugin offers"
    return ": in a resource's name + is written as a dot" if "+" in text else ""


def _below_clause(name: str) -> str:
    return f": it belongs below '{name}'"


def walk_scalars(node: nodes.YamlNode, path: JsonPath = ()) -> Iterator[tuple[JsonPath, nodes.ScalarNode]]:
    """Yield the scalars of a document with their paths."""
    if isinstance(node, nodes.ScalarNode):
        yield path, node
    elif isinstance(node, nodes.ListNode):
        for index, item in enumerate(node.items):
            yield from walk_scalars(item, (*path, index))
    else:
        for name, (_, value) in node.members.items():
            yield from walk_scalars(value, (*path, name))


def spelling_hint(name: str, candidates: Iterable[str]) -> str:
    """Return a "did you mean" clause that ignores upper and lower case."""
    same = {candidate.casefold(): candidate for candidate in candidates}
    return did_you_mean(same.get(name.casefold(), name), same.values())
