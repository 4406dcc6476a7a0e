"""A quick test of documents against their JSON Schema, without the problems of those that do not conform.

Nearly all documents conform, and jsonschema takes a millisecond for each, after a tenth of a second to be imported. It
finds the problems of the others. A test may be False for a value that conforms, as that of an unknown keyword is:
this costs only time.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from rules_engine.model.json.patch import Json

Conforms = Callable[[Json], bool]
"""A test: True only for a value that conforms to a schema."""


def conformance(schema: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> Conforms:
    """Return the test of a schema; `files` are the schemas that its references name."""
    return _Compiler({**files, _OWN: schema}, _OWN, {}).compile(schema)


_OWN = ""
"""The file of the schema itself, as references name it."""

_ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description", "examples", "default"})

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "object": (dict,),
    "array": (list,),
    "integer": (int,),  # 1.0 is one too, and left to jsonschema
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}

_OBJECTS = frozenset({"properties", "required", "additionalProperties"})
"""Keywords of one test: whether a member is additional depends on the properties."""


class _Compiler:
    """Compiler of the schemas in one of the files."""

    def __init__(
        self, files: Mapping[str, Mapping[str, Any]], file: str, tests: dict[tuple[str, str], Conforms]
    ) -> None:
        self._files = files
        self._file = file
        self._tests = tests
        """Tests by the file and the path of a reference, each made once: a schema may refer to itself."""

    def compile(self, schema: Mapping[str, Any]) -> Conforms:
        """Return the test of all keywords."""
        tests: list[Conforms] = []
        if "type" in schema:
            names = schema["type"]
            types = frozenset(type for name in ([names] if isinstance(names, str) else names) for type in _TYPES[name])
            tests.append(partial(_type, types))
        if _OBJECTS & schema.keys():
            tests.append(self._object(schema))
        for keyword, wanted in schema.items():
            if keyword not in _ANNOTATIONS | _OBJECTS | {"type"}:
                tests.append(self._keyword(keyword, wanted))
        return tests[0] if len(tests) == 1 else partial(_all, tests)

    def _object(self, schema: Mapping[str, Any]) -> Conforms:
        properties = {name: self.compile(member) for name, member in schema.get("properties", {}).items()}
        required = tuple(schema.get("required", ()))
        additional = schema.get("additionalProperties", True)
        others = self.compile(additional) if isinstance(additional, dict) else _anything if additional else _nothing
        return partial(_object, required, properties, others)

    def _keyword(self, keyword: str, wanted: Any) -> Conforms:
        match keyword:
            case "$ref":
                return self._reference(wanted)
            case "items":
                return partial(_items, self.compile(wanted))
            case "propertyNames":
                return partial(_keys, self.compile(wanted))
            case "anyOf":
                return partial(_any, [self.compile(option) for option in wanted])
            case "oneOf" if all(option.keys() == {"required"} for option in wanted):
                return partial(_one, [frozenset(option["required"]) for option in wanted])
            case "dependentSchemas":
                return partial(_dependent, {name: self.compile(schema) for name, schema in wanted.items()})
        return partial(_KEYWORDS[keyword], wanted) if keyword in _KEYWORDS else _nothing

    def _reference(self, reference: str) -> Conforms:
        file, _, path = reference.partition("#")
        key = (file or self._file, path)
        if key not in self._tests:
            # First, so that a schema may refer to itself.
            self._tests[key] = lambda value: self._tests[key](value)
            part: Any = self._files[key[0]]
            for step in path.strip("/").split("/"):
                part = part[step]
            self._tests[key] = _Compiler(self._files, key[0], self._tests).compile(part)
        return self._tests[key]


def _anything(value: Json) -> bool:  # noqa: ARG001 - a test
    return True


def _nothing(value: Json) -> bool:  # noqa: ARG001 - a test
    return False


def _all(tests: Sequence[Conforms], value: Json) -> bool:
    for test in tests:  # noqa: SIM110 - a generator takes twice the time
        if not test(value):
            return False
    return True


def _any(tests: Sequence[Conforms], value: Json) -> bool:
    return any(test(value) for test in tests)


def _one(options: Sequence[frozenset[str]], value: Json) -> bool:
    return not isinstance(value, dict) or sum(option <= value.keys() for option in options) == 1


def _type(types: frozenset[type], value: Json) -> bool:
    return type(value) in types


def _object(required: Sequence[str], properties: Mapping[str, Conforms], others: Conforms, value: Json) -> bool:
    if not isinstance(value, dict):
        return True
    for name in required:
        if name not in value:
            return False
    for name, member in value.items():  # noqa: SIM110 - a generator takes twice the time
        if not properties.get(name, others)(member):
            return False
    return True


def _items(test: Conforms, value: Json) -> bool:
    return not isinstance(value, list) or all(map(test, value))


def _keys(test: Conforms, value: Json) -> bool:
    return not isinstance(value, dict) or all(map(test, value))


def _dependent(tests: Mapping[str, Conforms], value: Json) -> bool:
    return not isinstance(value, dict) or all(test(value) for name, test in tests.items() if name in value)


def _pattern(wanted: str, value: Json) -> bool:
    return not isinstance(value, str) or pattern(wanted).search(value) is not None


def _unique(wanted: bool, value: Json) -> bool:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return not wanted or not isinstance(value, list) or (texts and len(set(map(str, value))) == len(value))


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KEYWORDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "pattern": _pattern,
    "uniqueItems": _unique,
    # Only texts: True and 1 are equal in Python.
    "enum": lambda wanted, value: isinstance(value, str) and value in wanted,
    "const": lambda wanted, value: isinstance(value, str) and value == wanted,
    "maxLength": lambda wanted, value: not isinstance(value, str) or len(value) <= wanted,
    "minItems": lambda wanted, value: not isinstance(value, list) or len(value) >= wanted,
    "maxItems": lambda wanted, value: not isinstance(value, list) or len(value) <= wanted,
    "minProperties": lambda wanted, value: not isinstance(value, dict) or len(value) >= wanted,
    "maxProperties": lambda wanted, value: not isinstance(value, dict) or len(value) <= wanted,
    "minimum": lambda wanted, value: not _number(value) or value >= wanted,
    "maximum": lambda wanted, value: not _number(value) or value <= wanted,
}


@cache
def pattern(wanted: str) -> re.Pattern[str]:
    """Return a pattern of JSON Schema, where "$" is the very end (ECMA 262); Python's also stands before a line end."""
    return re.compile(re.sub(r"\$$", r"\\Z", wanted))
