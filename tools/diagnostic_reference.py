"""Tables in docs/reference/diagnostics.md. `python -m tools.diagnostic_reference` updates them."""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from rules_engine.model.rules.finding import Certainty
from rules_engine.questions.doctor.reasons import NativeReason, NeverCreatedReason, PendingReason, RefusedReason
from rules_engine.rules.diagnostic import Diagnostic
from rules_engine.rules.sources.documents import load_documents
from tools.documents import REPOSITORY, fill_marked

DOCUMENT = REPOSITORY / "docs/reference/diagnostics.md"
FOLDER = REPOSITORY / "rules" / "diagnostics"


def packaged() -> Sequence[Diagnostic]:
    """Return the packaged Diagnostics, by name."""
    return sorted(load_documents([FOLDER]).of(Diagnostic), key=lambda diagnostic: diagnostic.name)


def built_in(reasons: type[StrEnum]) -> str:
    """Return the table of the members of an enum with their docstrings, in its order."""
    return "| reason | it is true if |\n|---|---|\n" + "".join(
        f"| `{reason}` | {text} |\n" for reason, text in _documented(reasons).items()
    )


def _documented(reasons: type[StrEnum]) -> Mapping[str, str]:
    """Return the docstring after each member: Python does not keep it."""
    (definition,) = ast.parse(inspect.getsource(reasons)).body
    assert isinstance(definition, ast.ClassDef)
    values = [ast.literal_eval(each.value) for each in definition.body if isinstance(each, ast.Assign)]
    texts = [ast.literal_eval(each.value) for each in definition.body[1:] if isinstance(each, ast.Expr)]
    assert values == [str(reason) for reason in reasons]
    return dict(zip(values, texts, strict=True))


def diagnostics() -> str:
    """Return the table of the packaged Diagnostics, by reason."""
    rows = "".join(map(_row, sorted(packaged(), key=lambda diagnostic: diagnostic.reason)))
    return f"| reason | for each | severity | description |\n|---|---|---|---|\n{rows}"


def _row(diagnostic: Diagnostic) -> str:
    severity = diagnostic.severity + (", possible" if diagnostic.certainty is Certainty.POSSIBLE else "")
    description = diagnostic.description + (" Its cause is on the host." if diagnostic.on_host else "")
    return f"| `{diagnostic.reason}` | {diagnostic.for_each} | {severity} | {description} |\n"


TABLES: Mapping[str, Callable[[], str]] = {
    "pending": lambda: built_in(PendingReason),
    "never-created": lambda: built_in(NeverCreatedReason),
    "refused": lambda: built_in(RefusedReason),
    "native": lambda: built_in(NativeReason),
    "diagnostics": diagnostics,
}


def renewed(text: str) -> str:
    """Return the document with the current tables."""
    return fill_marked(text, "([a-z-]+)", lambda name: TABLES[name]())


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
