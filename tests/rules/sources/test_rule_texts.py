"""Rules of texts that are no files."""

from pathlib import Path

from rules_engine.language.files import SourceFile
from rules_engine.model.rules.rule_test import RuleTest
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.sources.load import load_texts
from tests.support.loading import codes, rule

INJECTION = rule("ResourceInjection", "{gpuType: V100, gpuTypeAnnotation: a/b, coefficients: {cpu: 4}}")
BROKEN = INJECTION.replace("coefficients", "coeficients")
TEST = rule("RuleTest", "{cluster: {file: absent.yaml}, cases: []}")


def text(name: str, content: str) -> SourceFile:
    return SourceFile(f"git:main:{name}", content)


def test_texts_have_the_same_rules_and_digest_as_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(INJECTION, encoding="utf-8")
    files, texts = load_documents([tmp_path]), load_texts([text("a.yaml", INJECTION)])
    assert texts.digest == files.digest
    assert [read_rule.name for read_rule in texts.rules] == [read_rule.name for read_rule in files.rules]
    assert not texts.problems


def test_a_problem_has_the_name_of_its_text() -> None:
    texts = load_texts([text("a.yaml", BROKEN)])
    assert codes(texts.problems) == ["missing-field", "unknown-field"]
    assert {problem.location.file for problem in texts.problems} == {"git:main:a.yaml"}
    assert texts.sources["git:main:a.yaml"][0] == BROKEN.splitlines()[0]


def test_problems_are_in_the_order_of_the_texts() -> None:
    texts = load_texts([text("z.yaml", BROKEN), text("a.yaml", BROKEN.replace("{name: x", "{name: y"))])
    files = [problem.location.file for problem in texts.problems]
    assert files == sorted(files, reverse=True)
    assert set(files) == {"git:main:z.yaml", "git:main:a.yaml"}


def test_only_rules_are_read() -> None:
    texts = load_texts([text("a.yaml", f"{INJECTION}---\n{TEST}"), text("b.yaml", rule("Diagnostic", "{}"))])
    assert [found.name for found in texts.rules] == ["x"]
    assert (texts.problems, texts.tests, texts.of(RuleTest, valid=False), texts.of(Diagnostic, valid=False)) == (
        (),
        (),
        (),
        (),
    )
    assert texts.references == ()
