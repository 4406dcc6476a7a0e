"""Evaluation of rules of any kind: compile once, then match and evaluate for each request."""

from rules_engine.rules.rule_set.rule_set import RuleSet, compile_rules

__all__ = ["RuleSet", "compile_rules"]
