"""Remedies that change nothing."""

from rules_engine.model.rules.finding import Remedy, Risk

READING = {"Check", "Compare", "Evaluate", "Find", "List", "Look", "Read"}
"""First words of the texts of such remedies."""


def has_its_risk(remedy: Remedy) -> bool:
    """Return False if a remedy changes something without a risk."""
    return remedy.risk is not Risk.NONE or remedy.text.split()[0] in READING
