"""The kind PodDefaults."""

from pathlib import Path

from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.entries import effective_entry, entry_parts
from rules_engine.rules.pod_defaults.analysis import analyse, analyse_on
from rules_engine.rules.pod_defaults.evaluation import apply_pod_defaults, compile_pod_defaults, foresee_placement
from rules_engine.rules.pod_defaults.native import translate_pod_defaults
from rules_engine.rules.pod_defaults.reading import read
from rules_engine.rules.pod_defaults.value import PodDefaults, PodDefaultsCode
from rules_engine.rules.rule_set.compiled import RuleKind

KIND = RuleKind(
    value=PodDefaults,
    endpoint=Endpoint.MUTATE,
    read=read,
    compile=compile_pod_defaults,
    apply=apply_pod_defaults,
    foresee=foresee_placement,
    analyse=analyse,
    analyse_on=analyse_on,
    codes=PodDefaultsCode,
    problems=Path(__file__).with_name("problems.toml"),
    parts=entry_parts,
    effective=effective_entry,
    native=translate_pod_defaults,
)
