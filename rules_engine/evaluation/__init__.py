"""From rules to decisions: compile once, then match, ladders, injections and validations for each request."""

from rules_engine.evaluation.compiled import RuleSet, compile_rules
from rules_engine.evaluation.decide import mutate, validate
from rules_engine.evaluation.remembering import Remembering

__all__ = ["Remembering", "RuleSet", "compile_rules", "mutate", "validate"]
