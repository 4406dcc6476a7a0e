"""The kind ResourceInjection."""

from pathlib import Path

from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.entries import effective_entry, entry_parts
from rules_engine.rules.injection.analysis import analyse, analyse_on
from rules_engine.rules.injection.evaluation import apply_injections, compile_injection
from rules_engine.rules.injection.native import translate_injection
from rules_engine.rules.injection.reading import read
from rules_engine.rules.injection.value import InjectionCode, ResourceInjection
from rules_engine.rules.rule_set.compiled import RuleKind

KIND = RuleKind(
    value=ResourceInjection,
    endpoint=Endpoint.MUTATE,
    read=read,
    compile=compile_injection,
    apply=apply_injections,
    analyse=analyse,
    analyse_on=analyse_on,
    codes=InjectionCode,
    problems=Path(__file__).with_name("problems.toml"),
    parts=entry_parts,
    effective=effective_entry,
    native=translate_injection,
)
