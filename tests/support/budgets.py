"""Cost of a request, read off its budget."""

from rules_engine.language.cel import Budget


def units_spent(budget: Budget) -> int:
    """Return the units spent; those not yet granted are not among them."""
    return budget.limit - budget.left - budget.withheld
