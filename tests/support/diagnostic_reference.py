"""Table of Diagnostics in docs/how-to/diagnose.md. `python -m tests.support.diagnostic_reference` updates it."""

import re
from collections.abc import Sequence

from rules_engine.diagnosis.diagnostic import Diagnostic
from rules_engine.documents.registry import load_documents
from rules_engine.model.rules.finding import Certainty
from tests.support.documents import REPOSITORY

DOCUMENT = REPOSITORY / "docs/how-to/diagnose.md"
FOLDER = REPOSITORY / "rules" / "diagnostics"

_MARKED = re.compile(r"(<!-- diagnostics -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def packaged() -> Sequence[Diagnostic]:
    """Return the packaged Diagnostics, by name."""
    return sorted(load_documents([FOLDER]).of(Diagnostic), key=lambda diagnostic: diagnostic.name)


def table() -> str:
    """Return the table of the packaged Diagnostics, by reason."""
    rows = "".join(map(_row, sorted(packaged(), key=lambda diagnostic: diagnostic.reason)))
    return f"| reason | for each | severity | description |\n|---|---|---|---|\n{rows}"


def _row(diagnostic: Diagnostic) -> str:
    severity = diagnostic.severity + (", possible" if diagnostic.certainty is Certainty.POSSIBLE else "")
    description = diagnostic.description + (" Its cause is on the host." if diagnostic.on_host else "")
    return f"| `{diagnostic.reason}` | {diagnostic.for_each} | {severity} | {description} |\n"


def renewed(text: str) -> str:
    """Return the document with the current table."""
    return _MARKED.sub(lambda found: f"{found[1]}{table()}{found[3]}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
