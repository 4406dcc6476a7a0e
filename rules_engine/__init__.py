"""gpu-rules: declarative GPU admission rules for Kubernetes.

The names here are the public library (docs/reference/python.md); the command line and the server use them, too. Each is
imported when it is first used: importing all of them takes 0.6 s. The live cluster is read by `rules_engine.server`.
"""

TYPE_CHECKING = False  # as in typing, which takes 10 ms to import
if TYPE_CHECKING:
    from rules_engine.authoring.check.check import check_files as check
    from rules_engine.authoring.test.rule_tests import run_tests as run_tests
    from rules_engine.cluster.read.clusters import load_cluster as load_cluster
    from rules_engine.cluster.read.manifest_stream import load_manifests as load_manifests
    from rules_engine.cluster.read.manifests import Manifest as Manifest
    from rules_engine.model.kubernetes.cluster_objects import ClusterObjects as ClusterObjects
    from rules_engine.model.problems.problem import InputError as InputError
    from rules_engine.model.rules.admission import AdmissionRequest as AdmissionRequest
    from rules_engine.model.rules.decision import Decision as Decision
    from rules_engine.model.rules.simulation import Simulation as Simulation
    from rules_engine.questions.diff.run import diff as diff
    from rules_engine.questions.doctor.doctor import doctor as doctor
    from rules_engine.questions.explain.explain import NamespaceError as NamespaceError
    from rules_engine.questions.explain.explain import explain as explain
    from rules_engine.questions.plan.plan import LostNodeError as LostNodeError
    from rules_engine.questions.plan.plan import PlanError as PlanError
    from rules_engine.questions.plan.plan import plan as plan
    from rules_engine.questions.preflight.answer import preflight as preflight
    from rules_engine.questions.simulate.play import simulate as simulate
    from rules_engine.report.answer import answer_text as answer_text
    from rules_engine.rules.rule_set.rule_set import RuleSet as RuleSet
    from rules_engine.rules.sources.rule_sources import SourceError as SourceError
    from rules_engine.rules.sources.rule_sources import load_rules as load_rules
    from rules_engine.rules.sources.simulations import load_simulation as load_simulation

_MODULES = {
    "AdmissionRequest": "model.rules.admission",
    "ClusterObjects": "model.kubernetes.cluster_objects",
    "Decision": "model.rules.decision",
    "InputError": "model.problems.problem",
    "LostNodeError": "questions.plan.plan",
    "Manifest": "cluster.read.manifests",
    "NamespaceError": "questions.explain.explain",
    "PlanError": "questions.plan.plan",
    "RuleSet": "rules.rule_set.rule_set",
    "Simulation": "model.rules.simulation",
    "SourceError": "rules.sources.rule_sources",
    "answer_text": "report.answer",
    "check_files": "authoring.check.check",
    "diff": "questions.diff.run",
    "doctor": "questions.doctor.doctor",
    "explain": "questions.explain.explain",
    "load_cluster": "cluster.read.clusters",
    "load_manifests": "cluster.read.manifest_stream",
    "load_rules": "rules.sources.rule_sources",
    "load_simulation": "rules.sources.simulations",
    "plan": "questions.plan.plan",
    "preflight": "questions.preflight.answer",
    "run_tests": "authoring.test.rule_tests",
    "simulate": "questions.simulate.play",
}
"""The module of each name."""

__all__ = [
    "AdmissionRequest", "ClusterObjects", "Decision", "InputError", "LostNodeError", "Manifest", "NamespaceError",
    "PlanError", "RuleSet", "Simulation", "SourceError", "answer_text", "check", "diff", "doctor", "explain",
    "load_cluster", "load_manifests", "load_rules", "load_simulation", "plan", "preflight", "run_tests", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name."""
    from importlib import import_module

    defined = "check_files" if name == "check" else name
    if defined not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[defined]}"), defined)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
