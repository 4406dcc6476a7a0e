"""The kind Validation."""

from pathlib import Path

from rules_engine.model.rules.admission import Endpoint
from rules_engine.rules.rule_set.compiled import RuleKind
from rules_engine.rules.validation.evaluation import apply_validations, compile_validation
from rules_engine.rules.validation.native import translate_validation
from rules_engine.rules.validation.reading import analyse, effective, read
from rules_engine.rules.validation.value import Validation, ValidationCode

KIND = RuleKind(
    value=Validation,
    endpoint=Endpoint.VALIDATE,
    read=read,
    compile=compile_validation,
    apply=apply_validations,
    analyse=analyse,
    codes=ValidationCode,
    problems=Path(__file__).with_name("problems.toml"),
    effective=effective,
    native=translate_validation,
)
