"""Kinds of rules: one package each, with the same modules, and the registry."""

from rules_engine.evaluation.rule_set.compiled import Kind
from rules_engine.kinds.registry import KINDS, compile_rules, sort_rules

__all__ = ["KINDS", "Kind", "compile_rules", "sort_rules"]
