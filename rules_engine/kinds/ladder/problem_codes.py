"""Codes of problems of a FallbackLadder."""

from rules_engine.model.problems.codes import ProblemCode


class LadderCode(ProblemCode):
    """Codes of problems of a FallbackLadder."""

    DUPLICATE_RUNG = "duplicate-rung"
    POOL_KEYS = "pool-keys"
    SEVERAL_ASSUMED = "several-assumed"
    MISSING_WEIGHT = "missing-weight"
    CONDITION_READS_AMOUNTS = "condition-reads-amounts"
    SINGLE_RUNG = "single-rung"
    UNUSED_WHEN = "unused-when"
    UNREACHABLE_RUNG = "unreachable-rung"
    MIXED_CARDS = "mixed-cards"
    RUNG_ORDER = "rung-order"
    RUNG_NOT_OFFERED = "rung-not-offered"
    USELESS_TOLERATION = "useless-toleration"
    UNTOLERATED_POOL = "untolerated-pool"
    AUTOSCALED_POOL = "autoscaled-pool"
