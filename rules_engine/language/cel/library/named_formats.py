"""Named formats of strings (k8s.io/apiserver/pkg/cel/library/format.go; apimachinery, util/validation)."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from rules_engine.language.cel.budget import EvaluationError
from rules_engine.language.cel.library import url
from rules_engine.language.cel.values import times
from rules_engine.language.cel.values.functions import Library, parse_test
from rules_engine.language.cel.values.runtime_values import NONE, Optional
from rules_engine.language.cel.values.types import FORMAT, STRING, Type, list_of, optional_of
from rules_engine.model.kubernetes.names import MAX_LABEL, MAX_SUBDOMAIN

LIBRARY = Library()

VALIDATE_COST = 15
"""Units of a validation, in addition to the units of the text: it is matched, and its problems are written."""

_LABEL_1123 = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_is_timestamp = parse_test(times.parse_timestamp)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format. `problems` returns the problems of a string, none if it is valid."""

    cel_type: ClassVar[Type] = FORMAT
    name: str
    problems: Callable[[str], list[str]]


def _pattern_check(pattern: str, message: str, *examples: str) -> Callable[[str], list[str]]:
    """Return a check with the text of apimachinery's RegexError, which other tools compare."""
    compiled = re.compile(pattern)
    shown = " or ".join(f"'{example}', " for example in examples)
    text = f"{message} (e.g. {shown}regex used for validation is '{pattern}')"
    return lambda value: [] if compiled.fullmatch(value) else [text]


_label_1123 = _pattern_check(
    _LABEL_1123,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start and end with an alphanumeric character",
    "my-name",
    "123-abc",
)
_label_1035 = _pattern_check(
    _LABEL_1035,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character",
    "my-name",
    "abc-123",
)
_subdomain = _pattern_check(
    _SUBDOMAIN,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
    "example.com",
)
_label_value = _pattern_check(
    f"({_QUALIFIED})?",
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
)
_qualified_part = _pattern_check(
    _QUALIFIED,
    "name part must consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    "MyName",
    "my.name",
    "123-abc",
)


def _limit_length(check: Callable[[str], list[str]], limit: int, *, prefix: bool = False) -> Callable[[str], list[str]]:
    """Return a check that also bounds the length; a prefix may end in "-", since more text follows it."""

    def problems(value: str) -> list[str]:
        if prefix and value.endswith("-") and len(value) > 1:
            value = f"{value[:-2]}a"
        too_long = [f"must be no more than {limit} characters"] if len(value) > limit else []
        return [*too_long, *check(value)]

    return problems


def _name_problems(value: str) -> list[str]:
    parts = value.split("/")
    if len(parts) > 2:
        text = _qualified_part("")[0].removeprefix("name part must consist of")
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name must consist of{text} {example}"]
    problems: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {text}" for text in _limit_length(_subdomain, MAX_SUBDOMAIN)(parts[0])]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > MAX_LABEL:
        problems.append(f"name part must be no more than {MAX_LABEL} bytes")
    return problems + _qualified_part(name)


def _uri_problems(value: str) -> list[str]:
    try:
        url.parse_url(value)
    except EvaluationError as error:
        return [error.message]
    return []


def _base64_problems(value: str) -> list[str]:
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        return ["invalid base64"]
    return [] if value else ["invalid base64"]


def _date_problems(value: str) -> list[str]:
    try:
        valid = _DATE.fullmatch(value) and date.fromisoformat(value)
    except ValueError:
        valid = None
    return [] if valid else ["invalid date"]


FORMATS = {
    name: NamedFormat(name, problems)
    for name, problems in {
        "dns1123Label": _limit_length(_label_1123, MAX_LABEL),
        "dns1123Subdomain": _limit_length(_subdomain, MAX_SUBDOMAIN),
        "dns1035Label": _limit_length(_label_1035, MAX_LABEL),
        "qualifiedName": _name_problems,
        "dns1123LabelPrefix": _limit_length(_label_1123, MAX_LABEL, prefix=True),
        "dns1123SubdomainPrefix": _limit_length(_subdomain, MAX_SUBDOMAIN, prefix=True),
        "dns1035LabelPrefix": _limit_length(_label_1035, MAX_LABEL, prefix=True),
        "labelValue": _limit_length(_label_value, MAX_LABEL),
        "uri": _uri_problems,
        "uuid": lambda value: [] if _UUID.fullmatch(value) else ["does not match the UUID format"],
        "byte": _base64_problems,
        "date": _date_problems,
        "datetime": lambda value: [] if _is_timestamp(value) else ["invalid datetime"],
    }.items()
}


@LIBRARY.function("format.named", STRING, gives=optional_of(FORMAT))
def find_format(name: str) -> Optional:
    return Optional(True, FORMATS[name]) if name in FORMATS else NONE


def _constant_function(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


for _name, _format in FORMATS.items():
    LIBRARY.function(f"format.{_name}", gives=FORMAT, constant=True)(_constant_function(_format))


@LIBRARY.method("validate", FORMAT, STRING, gives=optional_of(list_of(STRING)), cost=VALIDATE_COST)
def validate(value: NamedFormat, text: str) -> Optional:
    problems = value.problems(text)
    return Optional(True, problems) if problems else NONE
