"""DocumentKind: how documents of a kind are read, and which part of a load their errors spoil."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

from rules_engine.documents.references import References
from rules_engine.loading.schemas import SCHEMAS
from rules_engine.loading.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems

T_co = TypeVar("T_co", covariant=True)


class Part(Enum):
    """A part of a load: an error of one leaves the others as they are."""

    RULES = "rules"
    DIAGNOSTICS = "diagnostics"
    TESTS = "tests"
    """RuleTests, Simulations, ClusterInventories, and the files that they name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind(Generic[T_co]):
    """A kind of document.

    `read` makes the value of a document that the schema in `schemas` has validated; the value is usable only if neither
    has found an error, and None if there is none to find further problems in. It takes the files that the document
    names from `References`.
    """

    name: str
    part: Part
    read: Callable[[MapNode, Problems, References], T_co | None]
    schemas: Path = SCHEMAS
