"""docs/reference/diagnostics.md: every problem of operators has a reason or is host only; all sections are current."""

import re
from collections.abc import Iterator

from rules_engine.language.yaml.documents import read_data
from rules_engine.model.json.lenient import as_mapping
from rules_engine.questions.doctor.reasons import NativeReason, NeverCreatedReason, PendingReason, RefusedReason
from rules_engine.rules.diagnostic.catalogue import FINDINGS, read_catalogue
from tools.diagnostic_reference import DOCUMENT, packaged, renewed, sections

TEXT = DOCUMENT.read_text(encoding="utf-8")
BUILT_IN = (*PendingReason, *NeverCreatedReason, *RefusedReason, *NativeReason)
REASONS = {*map(str, BUILT_IN), *(diagnostic.reason for diagnostic in packaged())}

PROBLEMS = (
    "GPU invisible",
    "pod cannot be scheduled",
    "device plugin down",
    "driver",
    "device allocation failed",
    "device unhealthy",
    "sharing and fragmentation",
    "MIG",
    "time-slicing",
    "RDMA",
    "native policies",
)
"""The problems that operators meet: rows of the page's table, in its order."""


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def cells(title: str) -> Iterator[list[str]]:
    """Yield the rows of the tables of a section, without their heads."""
    for line in section(title).splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def reasons(text: str) -> list[str]:
    """Return the names in a text that are written like reasons."""
    return re.findall(r"`([A-Z]\w*[a-z]\w*)`", text)


def mapped() -> list[list[str]]:
    """Return the rows of the table of problems."""
    return [row for row in cells("Problems") if row[2] != "reason"]


def test_every_problem_has_rows_in_order() -> None:
    assert tuple(row[0] for row in mapped() if row[0]) == PROBLEMS


def test_every_row_has_a_reason_or_is_host_only_with_a_command() -> None:
    for row in mapped():
        assert reasons(row[2]) or row[2].startswith("host only: "), row
        if "host only" in row[2]:
            assert reasons(row[2]) or "kubectl" in row[2], row


def test_every_reason_answers_a_problem() -> None:
    named = {reason for row in mapped() for reason in reasons(row[2])}

    assert named == REASONS


def test_every_reason_of_the_page_exists() -> None:
    page = re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)

    assert set(reasons(page)) == REASONS


def test_host_only_commands_are_those_of_the_reasons_that_they_name() -> None:
    """A row that refers to the command of a reason refers to one that looks at the host, or at a log."""
    commands = {
        reason: "".join(remedy.command for remedy in entry.remedies) for reason, entry in read_catalogue().items()
    }
    tools = {
        "nvidia-smi": "nvidia-smi",
        "dmesg": "dmesg",
        "ls /dev/nvidia*": "ls -l /host/dev/nvidia*",
        "log": " logs ",
    }
    checked = 0
    for row in mapped():
        if row[2].startswith("host only: ") and reasons(row[2]):
            looks = [used for tool, used in tools.items() if tool in row[2].partition("by the command")[0]]
            assert len(looks) == 1, row
            assert any(looks[0] in commands[reason] for reason in reasons(row[2])), row
            checked += 1
    assert checked >= 5


def test_the_sections_of_reasons_are_current() -> None:
    assert renewed(TEXT) == TEXT
    assert all(f"<!-- {name} -->" in TEXT for name in sections())


def test_every_reason_has_one_section_in_the_order_of_its_file() -> None:
    titles = re.findall("^### (.*)$", TEXT, re.MULTILINE)

    assert sorted(titles) == sorted(REASONS)
    for path in FINDINGS.glob("*.yaml"):
        written = [reason for reason in as_mapping(read_data(path)) if reason in REASONS]
        assert [title for title in titles if title in written] == written
