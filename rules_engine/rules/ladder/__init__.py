"""The kind FallbackLadder."""

from pathlib import Path

from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.ladder.analysis import analyse, analyse_on, analyse_quotas
from rules_engine.rules.ladder.effective import effective, parts
from rules_engine.rules.ladder.evaluation import apply_ladders, compile_ladder
from rules_engine.rules.ladder.native import translate_ladder
from rules_engine.rules.ladder.reading import read
from rules_engine.rules.ladder.value import FallbackLadder, LadderCode
from rules_engine.rules.rule_set.compiled import RuleKind

KIND = RuleKind(
    value=FallbackLadder,
    endpoint=Endpoint.MUTATE,
    read=read,
    compile=compile_ladder,
    apply=apply_ladders,
    analyse=analyse,
    analyse_on=analyse_on,
    analyse_quotas=analyse_quotas,
    codes=LadderCode,
    problems=Path(__file__).with_name("problems.toml"),
    parts=parts,
    effective=effective,
    native=translate_ladder,
)
