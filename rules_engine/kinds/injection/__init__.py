"""The kind ResourceInjection."""

from pathlib import Path

from rules_engine.evaluation.rule_set.compiled import Kind
from rules_engine.kinds.injection.analysis import analyse, analyse_on
from rules_engine.kinds.injection.effective import effective, parts
from rules_engine.kinds.injection.evaluation import apply_injections, compile_injection
from rules_engine.kinds.injection.native import translate_injection
from rules_engine.kinds.injection.reading import read
from rules_engine.kinds.injection.value import InjectionCode, ResourceInjection
from rules_engine.model.rules.admission import Endpoint

KIND = Kind(
    value=ResourceInjection,
    endpoint=Endpoint.MUTATE,
    read=read,
    compile=compile_injection,
    apply=apply_injections,
    analyse=analyse,
    analyse_on=analyse_on,
    codes=InjectionCode,
    problems=Path(__file__).with_name("problems.toml"),
    parts=parts,
    effective=effective,
    native=translate_injection,
)
