"""Semantic versions (k8s.io/apiserver/pkg/cel/library/semverlib.go; semver.org, version 2.0.0)."""

import re
from dataclasses import dataclass
from typing import ClassVar

from rules_engine.language.cel.budget import Budget, EvaluationError
from rules_engine.language.cel.values.functions import Library, parse_test
from rules_engine.language.cel.values.runtime_values import INT_MAX, UINT_MAX
from rules_engine.language.cel.values.types import BOOL, INT, SEMVER, STRING, Type

LIBRARY = Library()

MAX_TEXT = 1_000
"""Characters in a version; longer texts are invalid."""

PARSE_COST = 10
"""Units of parsing a version: matching and building it takes 5 µs."""

COMPARE_COST = 5
"""Units of a comparison, in addition to one for each identifier of both pre-releases."""

_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Semver:
    """A version. Order and equality ignore build metadata."""

    cel_type: ClassVar[Type] = SEMVER
    major: int
    minor: int
    patch: int
    pre_release: tuple[str, ...]

    @property
    def units(self) -> int:
        """Cost of a comparison."""
        return len(self.pre_release)

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: a pre-release comes before its release, numbers before words (section 11)."""
        words = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in self.pre_release)
        return self.major, self.minor, self.patch, not self.pre_release, words


def parse_strictly(text: str) -> Semver:
    """Parse a version exactly as specified. Raises EvaluationError."""
    match = _VERSION.fullmatch(text) if len(text) <= MAX_TEXT else None
    if match is not None:
        major, minor, patch = (int(part) for part in match.groups()[:3])
        words = tuple(match[4].split(".")) if match[4] else ()
        numbers = [major, minor, patch, *(int(word) for word in words if word.isdigit())]
        if max(numbers) <= UINT_MAX:
            return Semver(major=major, minor=minor, patch=patch, pre_release=words)
    raise EvaluationError("the string is not a semantic version")


def normalize_version(text: str) -> str:
    """Remove a leading v and leading zeros, and add a missing minor or patch. Raises EvaluationError."""
    parts = [_strip_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise EvaluationError("a short version cannot have a pre-release or build")
    return ".".join([*parts, "0", "0"][:3]) if len(parts) < 3 else ".".join(parts)


def _strip_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdigit() else f"0{stripped}"


@LIBRARY.function("semver", STRING, gives=SEMVER, cost=PARSE_COST)
@LIBRARY.function("semver", STRING, BOOL, gives=SEMVER, cost=PARSE_COST)
def parse_semver(text: str, normalize: bool = False) -> Semver:
    return parse_strictly(normalize_version(text) if normalize else text)


LIBRARY.function("isSemver", STRING, gives=BOOL, cost=PARSE_COST)(parse_test(parse_semver))
LIBRARY.function("isSemver", STRING, BOOL, gives=BOOL, cost=PARSE_COST)(parse_test(parse_semver))


def _check_part(value: int) -> int:
    if value > INT_MAX:
        raise EvaluationError("integer out of range")
    return value


@LIBRARY.method("major", SEMVER, gives=INT, constant=True)
def major(value: Semver) -> int:
    return _check_part(value.major)


@LIBRARY.method("minor", SEMVER, gives=INT, constant=True)
def minor(value: Semver) -> int:
    return _check_part(value.minor)


@LIBRARY.method("patch", SEMVER, gives=INT, constant=True)
def patch(value: Semver) -> int:
    return _check_part(value.patch)


@LIBRARY.method("compareTo", SEMVER, SEMVER, gives=INT, budgeted=True)
def compare_to(budget: Budget, left: Semver, right: Semver) -> int:
    budget.spend(COMPARE_COST + left.units + right.units)
    left_order, right_order = left.order, right.order
    return (left_order > right_order) - (left_order < right_order)


@LIBRARY.method("isLessThan", SEMVER, SEMVER, gives=BOOL, budgeted=True)
def is_less_than(budget: Budget, left: Semver, right: Semver) -> bool:
    return compare_to(budget, left, right) < 0


@LIBRARY.method("isGreaterThan", SEMVER, SEMVER, gives=BOOL, budgeted=True)
def is_greater_than(budget: Budget, left: Semver, right: Semver) -> bool:
    return compare_to(budget, left, right) > 0
