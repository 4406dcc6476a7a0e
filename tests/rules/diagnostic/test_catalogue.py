"""The catalogue of findings: its entries, their texts with slots, and Diagnostics that use them."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from rules_engine.language.files import SourceFile
from rules_engine.language.yaml.documents import read_documents
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.problem import Problems
from rules_engine.model.rules.finding import Certainty, FindingSeverity, Remedy, Risk
from rules_engine.questions.doctor.reasons import NativeReason, NeverCreatedReason, PendingReason, RefusedReason
from rules_engine.rules.diagnostic.catalogue import FINDINGS, OWN_SLOTS, Entry, new_finding, read_catalogue, slots_of
from rules_engine.rules.diagnostic.evaluation import compile_diagnostics
from rules_engine.rules.diagnostic.texts import read_texts
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.documents import load_documents
from tests.rules.diagnostic.test_diagnostics import findings, problems, run
from tests.support.api import cluster, node
from tests.support.diagnostics import diagnostic
from tests.support.remedies import has_its_risk
from tools.documents import REPOSITORY

CATALOGUE = read_catalogue()
ENTRIES = {
    f"{reason} {case}".strip(): entry.case(case) for reason, entry in CATALOGUE.items() for case in ("", *entry.cases)
}
EACH = pytest.mark.parametrize("entry", [pytest.param(entry, id=name) for name, entry in ENTRIES.items()])
FILES = sorted(FINDINGS.glob("*.yaml"))
PACKAGED = load_documents([REPOSITORY / "rules" / "diagnostics"]).of(Diagnostic)
PARTS = {"NodeFindingsFirst", "LadderWouldMove"}
"""Entries of evidence and remedies of other findings, by literal reasons."""

HOSTILE = 'a\'; rm -rf "$(x)"'
CODE = [
    path
    for folder in ("rules_engine/questions", "rules_engine/rules/diagnostic")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
]


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    """Yield the calls of a function, by name, in the code that finds."""
    for path in CODE:
        for each in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == name:
                yield path, each


class TestLaw:
    """No reason, severity, remedy or cause stands outside of the catalogue."""

    def test_only_the_catalogue_and_users_diagnostics_construct_findings_and_remedies(self) -> None:
        for name in ("Remedy", "Finding"):
            assert {path.name for path, _ in calls(name)} == {"catalogue.py", "evaluation.py"}

    def test_each_reason_is_an_entry_and_each_entry_is_used(self) -> None:
        literals = {
            call.args[0].value
            for _, call in calls("new_finding")
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
        }
        enums = {*map(str, (*PendingReason, *NeverCreatedReason, *RefusedReason, *NativeReason))}
        assert literals == PARTS
        assert literals | enums | {each.reason for each in PACKAGED} == CATALOGUE.keys()

    def test_each_reason_of_an_enum_is_found_by_code(self) -> None:
        text = "".join(path.read_text("utf-8") for path in CODE if path.name != "reasons.py")
        for enum in (PendingReason, NeverCreatedReason, RefusedReason, NativeReason):
            assert [each.name for each in enum if f"{enum.__name__}.{each.name}" not in text] == []

    def test_each_case_is_found_by_code_or_by_a_text(self) -> None:
        names = {
            each.value
            for path in CODE
            for each in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        } | {"Single", "None"}  # a MIG strategy, capitalized
        names |= {each.case for each in read_texts().texts}
        assert {case for entry in CATALOGUE.values() for case in entry.cases} <= names

    def test_packaged_diagnostics_have_no_text_of_their_own(self) -> None:
        for each in PACKAGED:
            assert (each.message, each.message_expression, each.cause, each.remedies) == ("", None, "", ())

    def test_a_packaged_diagnostic_gives_the_slots_of_its_entry(self) -> None:
        for each in PACKAGED:
            assert each.entry is not None
            assert each.slots.keys() == each.entry.slots


class TestEntries:
    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
    def test_a_file_has_no_yaml_problem(self, path: Path) -> None:
        problems = Problems()
        read_documents(SourceFile(path.name, path.read_text("utf-8")), problems)
        assert problems.items == []

    def test_a_reason_stands_in_one_file(self) -> None:
        reasons = [
            line for path in FILES for line in re.findall(r"^([A-Z]\w+):", path.read_text("utf-8"), re.MULTILINE)
        ]
        assert sorted(reasons) == sorted(CATALOGUE)

    def test_a_case_has_a_summary_of_its_own(self) -> None:
        for entry in CATALOGUE.values():
            summaries = [entry.summary, *(entry.case(case).summary for case in entry.cases)]
            assert len({*summaries}) == len(summaries)

    @EACH
    def test_texts_are_sentences(self, entry: Entry) -> None:
        for text in (entry.summary, entry.cause, *(each.text for each in entry.remedies)):
            assert not text or text.endswith((".", ".*"))
        assert not entry.message.endswith(".")

    @EACH
    def test_the_risk_of_a_remedy_is_that_of_its_command(self, entry: Entry) -> None:
        assert all(map(has_its_risk, entry.remedies))

    @EACH
    def test_braces_are_slots_or_jsonpath(self, entry: Entry) -> None:
        for text in (
            entry.message,
            entry.cause,
            *(part for each in entry.remedies for part in (each.text, each.command)),
        ):
            assert "{" not in re.sub(r"\{[a-z][A-Za-z]*\}|'\{\.[\w.]+\}'", "", text)

    @EACH
    def test_a_hostile_value_cannot_leave_its_word_of_a_command(self, entry: Entry) -> None:
        for remedy in entry.remedies:
            plain, hostile = (
                Entry(severity=FindingSeverity.INFO, summary="", message="", remedies=(remedy,))
                .fill(ObjectName("Pod", value, value), dict.fromkeys(entry.slots, value))[2][0]
                .command
                for value in ("PLAIN", HOSTILE)
            )
            words = shlex.split(plain, comments=False)
            assert shlex.split(hostile) == [word.replace("PLAIN", HOSTILE) for word in words]
            assert ("PLAIN" in plain) == bool(slots_of(remedy.command) - {"kind"})

    @EACH
    def test_own_slots_are_those_of_the_object(self, entry: Entry) -> None:
        assert not entry.slots & OWN_SLOTS


ENTRY = Entry(
    severity=FindingSeverity.WARNING,
    summary="A thing is broken.",
    message="{things} are broken",
    cause="Because of {why}.",
    remedies=(
        Remedy(text="Look at {name}.", command="kubectl get {kind} {name} {things}"),
        Remedy(text="Mend {tool}.", risk=Risk.HIGH),
    ),
    cases={"Worse": {"severity": "Error", "message": "{things} are lost", "remedies": [{"text": "Buy {things}."}]}},
)
ABOUT = ObjectName("Node", "worker 1")


class TestFilling:
    def test_lists_are_joined_in_texts_and_are_words_of_commands(self) -> None:
        message, cause, remedies = ENTRY.fill(ABOUT, {"things": ["a", "b c"], "why": "x", "tool": "y"})
        assert (message, cause) == ("a and b c are broken", "Because of x.")
        assert remedies == (
            Remedy(text="Look at worker 1.", command="kubectl get node 'worker 1' a 'b c'"),
            Remedy(text="Mend y.", risk=Risk.HIGH),
        )

    def test_texts_with_an_empty_slot_are_left_out(self) -> None:
        message, cause, remedies = ENTRY.fill(ABOUT, {"things": "", "tool": []})
        assert (message, cause, remedies) == (" are broken", "", (Remedy(text="Look at worker 1."),))

    def test_values_are_not_filled_themselves(self) -> None:
        assert ENTRY.fill(ABOUT, {"things": "{why}", "why": "x", "tool": ""})[0] == "{why} are broken"

    def test_a_case_inherits_what_it_does_not_replace(self) -> None:
        worse = ENTRY.case("Worse")
        assert (worse.severity, worse.message) == (FindingSeverity.ERROR, "{things} are lost")
        assert (worse.cause, worse.remedies) == (ENTRY.cause, (Remedy(text="Buy {things}."),))
        assert worse.slots == {"things", "why"}
        assert (ENTRY.case(""), worse.cases) == (ENTRY, {})

    def test_a_finding_has_the_fields_of_its_case(self) -> None:
        about = ObjectName("Pod", "train", "ml")
        finding = new_finding("UnboundVolumeClaims", about, case="Late", slots={"claims": ["a", "b"], "claim": "a"})
        assert (finding.severity, finding.certainty) == (FindingSeverity.WARNING, Certainty.POSSIBLE)
        assert finding.message == "volume claims of the pod are not bound: a and b"
        assert finding.remedies[0].command == "kubectl describe persistentvolumeclaim -n ml a"

    def test_an_unknown_field_or_severity_is_an_error(self) -> None:
        for fields in ({"severty": "Error"}, {"severity": "Fatal"}):
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({"severity": "Error", "summary": "", "message": ""} | fields, Entry)


FAILED = """
forEach: Node
reason: MIGStrategyNone
slots: {layout: object.metadata.?labels.layout.orValue('')}
"""


class TestDiagnostics:
    """Diagnostics of users with a reason of the catalogue."""

    def only(self, spec: str, tmp_path: Path) -> tuple[Diagnostic, dict[str, object]]:
        """Return a Diagnostic without the plain fields of tests, and its finding about a node with a layout."""
        file = tmp_path / "one.yaml"
        head = "apiVersion: gpurules.io/v1\nkind: Diagnostic\nmetadata: {name: one}\nspec:\n  when: 'true'\n"
        file.write_text(head + "".join(f"  {line}\n" for line in spec.strip().splitlines()))
        loaded = load_documents([file])
        assert loaded.problems == ()
        (compiled,), found = compile_diagnostics(loaded.of(Diagnostic))
        assert found == ()
        evaluation = run(compiled, cluster(node("a", labels={"layout": "all-1g.5gb"})))
        assert evaluation.not_evaluated == ()
        return compiled.diagnostic, structs.asdict(evaluation.findings[0])

    def test_all_fields_come_from_the_entry(self, tmp_path: Path) -> None:
        written, finding = self.only(FAILED, tmp_path)
        expected = new_finding("MIGStrategyNone", ObjectName("Node", "a"), slots={"layout": "all-1g.5gb"})
        names = ("message", "cause", "severity", "certainty", "remedies", "on_host")
        assert {name: finding[name] for name in names} == {name: getattr(expected, name) for name in names}
        assert written.description == CATALOGUE["MIGStrategyNone"].summary

    @pytest.mark.parametrize(
        ("field", "name", "value"),
        [
            ("severity: Info", "severity", FindingSeverity.INFO),
            ("certainty: Possible", "certainty", Certainty.POSSIBLE),
            ("message: mine", "message", "mine"),
            ("messageExpression: \"'my ' + object.metadata.name\"", "message", "my a"),
            ("cause: Mine.", "cause", "Mine."),
            ("cause: ''", "cause", ""),
            ("remedies: [{text: Mine.}]", "remedies", (Remedy(text="Mine."),)),
            ("remedies: []", "remedies", ()),
            ("onHost: true", "on_host", True),
        ],
    )
    def test_a_field_of_its_own_wins_alone(self, field: str, name: str, value: object, tmp_path: Path) -> None:
        given = "".join(f"  {slot}: \"'x'\"\n" for slot in ("layout", "manager", "managerNamespace"))
        spec = f"forEach: Node\nreason: MIGLayoutPending\nslots:\n{given}"
        _, inherited = self.only(spec, tmp_path)
        _, finding = self.only(spec + field, tmp_path)
        assert finding[name] == value
        assert {key for key in finding if finding[key] != inherited[key]} <= {name, "source"}

    def test_causes_and_description_of_its_own_win(self, tmp_path: Path) -> None:
        written, _ = self.only(f"{FAILED}causedBy: [Mine]\ndescription: Mine.", tmp_path)
        assert (written.caused_by, written.description) == (("Mine",), "Mine.")

    def test_with_a_message_of_its_own_it_needs_no_slot(self, tmp_path: Path) -> None:
        [finding] = findings("message: mine\nreason: NoAllocatableDevices", cluster(node("a")), tmp_path)
        assert (finding.message, finding.cause) == ("mine", CATALOGUE["NoAllocatableDevices"].cause)
        assert not [remedy for remedy in finding.remedies if "{" in remedy.text + remedy.command]
        assert len(finding.remedies) == len(CATALOGUE["NoAllocatableDevices"].remedies) - 2

    def test_a_slot_whose_objects_were_not_read_is_empty(self, tmp_path: Path) -> None:
        spec = """
            reason: DevicePluginNotReady
            message: mine
            slots:
              plugin: object.pods()[0].metadata.name
              pluginNamespace: object.pods()[0].metadata.namespace
        """
        compiled = diagnostic(spec, tmp_path)
        [unread] = run(compiled, cluster(node("a"), absent=["Pod"])).findings
        assert {remedy.command for remedy in unread.remedies} == {""}

    @pytest.mark.parametrize("value", ["object.spec", "[object.metadata.name, 5]"])
    def test_a_slot_that_is_no_text_is_not_evaluated(self, value: str, tmp_path: Path) -> None:
        compiled = diagnostic(f"reason: MIGStrategyNone\nmessage: mine\nslots: {{layout: 'dyn({value})'}}", tmp_path)
        evaluation = run(compiled, cluster(node("a")))
        [failed] = evaluation.not_evaluated
        assert failed.why.endswith(": the slot is neither a string nor a list of strings")

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ("reason: MIGStrategyNone", ["finding-slots: the finding MIGStrategyNone needs the slot 'layout'"]),
            (
                "reason: MIGStrategyNone, slots: {layout: \"'x'\", more: \"'x'\"}",
                ["finding-slots: the finding MIGStrategyNone has no slot 'more'"],
            ),
            (
                "reason: NodeNotFound, slots: {node: \"'x'\"}",
                ["finding-slots: the remedies of NodeNotFound are for each Pod, not Node: write remedies of your own"],
            ),
            ("reason: NodeNotFound, slots: {node: \"'x'\"}, remedies: [{text: mine}]", []),
            (
                "reason: Unwell, severity: Error, message: x, slots: {more: \"'x'\"}",
                ["finding-slots: the finding Unwell has no slot 'more'"],
            ),
            (
                "reason: Unwell",
                ["missing-field: the catalogue of findings has no Unwell: the Diagnostic needs severity and message"],
            ),
            (
                "reason: MIGStrategyNon, severity: Error, slots: {layout: \"'x'\"}",
                [
                    (
                        "missing-field: the catalogue of findings has no MIGStrategyNon "
                        "(did you mean 'MIGStrategyNone'?): the Diagnostic needs message"
                    )
                ],
            ),
            (
                "reason: Unwell, message: x",
                ["missing-field: the catalogue of findings has no Unwell: the Diagnostic needs severity"],
            ),
            (
                "reason: Unwell, severity: Error",
                ["missing-field: the catalogue of findings has no Unwell: the Diagnostic needs message"],
            ),
            (
                "reason: Unwell, severity: Errr, message: x",
                ["wrong-value: 'Errr' is not one of Error, Warning, Info (did you mean 'Error'?)"],
            ),
            (
                "reason: MIGStrategyNone, slots: {layout: '5'}",
                ["cel-result-type: a slot must be a string or a list of strings, not int"],
            ),
            (
                "reason: MIGStrategyNone, slots: {layout: objct.a}",
                ["cel-undeclared: undeclared reference to 'objct' (did you mean 'object'?)"],
            ),
            ("reason: MIGLayoutInvalid, onHost: true", []),
            (
                "reason: MIGLayoutInvalid, onHost: true, remedies: []",
                ["missing-command: no remedy has a command that looks on the node"],
            ),
        ],
    )
    def test_problems(self, spec: str, expected: list[str], tmp_path: Path) -> None:
        assert problems(f"{{forEach: Node, when: 'true', {spec}}}", tmp_path) == expected
