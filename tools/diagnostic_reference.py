"""Sections of docs/reference/diagnostics.md. `python -m tools.diagnostic_reference` updates them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from rules_engine.model.rules.finding import Certainty, Remedy, Risk
from rules_engine.questions.doctor.reasons import NativeReason, NeverCreatedReason, PendingReason, RefusedReason
from rules_engine.rules.diagnostic.catalogue import Entry, read_catalogue
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.documents import load_documents
from tools.documents import REPOSITORY, fill_marked

DOCUMENT = REPOSITORY / "docs/reference/diagnostics.md"
FOLDER = REPOSITORY / "rules" / "diagnostics"
TOPICS = (
    "gpu-nodes",
    "device-plugin",
    "dynamic-resources",
    "devices",
    "containers",
    "driver",
    "mig",
    "sharing",
    "rdma",
)
"""Files of the packaged Diagnostics, in the order of the page."""


def packaged() -> Sequence[Diagnostic]:
    """Return the packaged Diagnostics, in the order of the page."""
    return [each for topic in TOPICS for each in load_documents([FOLDER / f"{topic}.yaml"]).of(Diagnostic)]


def section(reason: str, diagnostic: Diagnostic | None = None) -> str:
    """Return the section of a reason; `diagnostic`: the packaged one, if one finds it."""
    entry = read_catalogue()[reason]
    host = " The cause is on the host." if entry.on_host else ""
    each = f", for each {diagnostic.for_each}" if diagnostic and diagnostic.for_each != "Cluster" else ""
    slots = ", ".join(f"`{slot}`" for slot in sorted(entry.slots)) if diagnostic else ""
    parts = [
        f"### {reason}",
        f"{_severity(entry)}{each}. {entry.summary}{host}",
        *_texts(entry),
        *(text for case in entry.cases for text in _case(entry.case(case), entry)),
        *([f"*Slots*: {slots}"] if slots else []),
    ]
    return "".join(f"{part}\n\n" for part in parts)


def _severity(entry: Entry) -> str:
    return entry.severity + (", possible" if entry.certainty is Certainty.POSSIBLE else "")


def _texts(entry: Entry) -> Iterator[str]:
    if entry.message:
        yield f"*You see*: {_placeholders(entry.message)}"
    if entry.cause:
        yield f"*Because*: {_placeholders(entry.cause)}"
    if entry.remedies:
        yield "*Do*:\n\n" + "\n".join(map(_remedy, entry.remedies))


def _case(case: Entry, usual: Entry) -> Iterator[str]:
    """Yield what differs in a case."""
    severity = f" {_severity(case)}." if _severity(case) != _severity(usual) else ""
    yield f"*Case*: {case.summary}{severity}"
    yield from _texts(
        structs.replace(
            case,
            message="" if case.message == usual.message else case.message,
            cause="" if case.cause == usual.cause else case.cause,
            remedies=tuple(each for each in case.remedies if each not in usual.remedies),
        )
    )


def _remedy(remedy: Remedy) -> str:
    command = f" `{_placeholders(remedy.command)}`" if remedy.command else ""
    risk = f" Risk: {remedy.risk}." if remedy.risk is not Risk.NONE else ""
    return f"- {_placeholders(remedy.text)}{risk}{command}"


def _placeholders(text: str) -> str:
    """Return a text with its slots in capitals."""
    return re.sub(r"\{([a-z][A-Za-z]*)\}", lambda slot: re.sub("([A-Z])", r"_\1", slot[1]).upper(), text)


def sections() -> Mapping[str, str]:
    """Return the generated parts of the page."""
    built_in: Mapping[str, Iterable[str]] = {
        "pending": PendingReason,
        "never-created": NeverCreatedReason,
        "refused": RefusedReason,
        "native": NativeReason,
    }
    return {
        **{name: "".join(map(section, reasons)).strip() + "\n" for name, reasons in built_in.items()},
        "diagnostics": "".join(section(each.reason, each) for each in packaged()).strip() + "\n",
    }


def renewed(text: str) -> str:
    """Return the document with its current sections."""
    current = sections()
    return fill_marked(text, "([a-z-]+)", lambda name: f"\n{current[name]}\n")


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
