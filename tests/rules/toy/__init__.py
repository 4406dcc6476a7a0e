"""A kind of rule that only the tests have: it annotates pods that request a resource."""

from pathlib import Path

from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.rule_set.compiled import RuleKind
from tests.rules.toy.analysis import analyse
from tests.rules.toy.evaluation import apply_marks, compile_mark, translate_mark
from tests.rules.toy.reading import read
from tests.rules.toy.value import Mark, MarkCode

KIND = RuleKind(
    value=Mark,
    endpoint=Endpoint.MUTATE,
    read=read,
    compile=compile_mark,
    apply=apply_marks,
    native=translate_mark,
    analyse=analyse,
    codes=MarkCode,
    problems=Path(__file__).with_name("problems.toml"),
    schemas=Path(__file__).parent / "schemas",
)
