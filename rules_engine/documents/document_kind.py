"""DocumentKind: the reader of a kind of document, and the part of a load that its errors invalidate."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

from rules_engine.documents.references import References
from rules_engine.language.schemas import SCHEMAS
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems

T_co = TypeVar("T_co", covariant=True)


class Part(Enum):
    """A part of a load: an error in one part leaves the others valid."""

    RULES = "rules"
    DIAGNOSTICS = "diagnostics"
    TESTS = "tests"
    """RuleTests, Simulations, ClusterInventories, and the files they refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind(Generic[T_co]):
    """A kind of document.

    `read` returns the value of a document that the schema in `schemas` has validated, or None if it has no value in
    which to look for further problems. The value is valid only if neither the schema nor `read` reports an error. Files
    that the document refers to come from `References`.
    """

    name: str
    part: Part
    read: Callable[[MapNode, Problems, References], T_co | None]
    schemas: Path = SCHEMAS
