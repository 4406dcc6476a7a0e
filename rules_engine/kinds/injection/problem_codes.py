"""Codes of problems of a ResourceInjection."""

from rules_engine.model.problems.codes import ProblemCode


class InjectionCode(ProblemCode):
    """Codes of problems of a ResourceInjection."""

    GPU_COEFFICIENT = "gpu-coefficient"
    NOTHING_TO_INHERIT = "nothing-to-inherit"
    UNREACHABLE_INJECTION = "unreachable-injection"
    UNUSED_ENTRY = "unused-entry"
    INJECTION_CONFLICT = "injection-conflict"
    UNUSED_DEFAULT = "unused-default"
    EXCEEDS_NODES = "exceeds-nodes"
