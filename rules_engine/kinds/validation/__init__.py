"""The kind Validation."""

from pathlib import Path

from rules_engine.evaluation.rule_set.compiled import Kind
from rules_engine.kinds.validation.evaluation import apply_validations, compile_validation
from rules_engine.kinds.validation.native import translate_validation
from rules_engine.kinds.validation.reading import analyse, effective, read
from rules_engine.kinds.validation.value import Validation, ValidationCode
from rules_engine.model.rules.admission import Endpoint

KIND = Kind(
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
