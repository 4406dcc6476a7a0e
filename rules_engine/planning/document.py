"""Plans as documents: JSON, which schemas/output/plan.json describes, and the files that apply a plan.

Source of the configurations of nvidia-mig-parted: github.com/NVIDIA/mig-parted, api/spec/v1/spec.go.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_KINDS
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.planning.cluster import Candidate, name_configs
from rules_engine.planning.plan import Plan
from rules_engine.report.documents import field_members
from rules_engine.simulation.document import figure_members


def plan_document(plan: Plan, problems: Sequence[Any]) -> dict[str, Any]:
    """Return the document of `plan --output json`. `problems`: of its input, as members."""
    return {
        "simulation": plan.cluster.base.name,
        **field_members(plan, "rules card cards by simulated candidates complete interrupted notices"),
        "choices": [
            {
                "configs": {
                    node.name: names[layouts]
                    for names in (name_configs(choice.candidate),)
                    for node, layouts in zip(plan.cluster.nodes, choice.candidate, strict=True)
                },
                "migConfigs": mig_configs_document(choice.candidate),
                **figure_members(choice.figures),
            }
            for choice in plan.choices
        ],
        "inventory": inventory_document(plan),
        "problems": problems,
    }


def inventory_document(plan: Plan) -> dict[str, Json]:
    """Return the cluster of the best choice as a ClusterInventory."""
    cluster = plan.cluster.simulation_on(plan.choices[0].candidate).objects
    objects: list[Json] = [dict(each) for kind in API_KINDS for each in cluster.of(kind)]
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterInventory",
        "metadata": {"name": "plan"},
        "spec": {"objects": objects},
    }


def mig_configs_document(candidate: Candidate) -> dict[str, Json]:
    """Return the configurations of nodes for nvidia-mig-parted."""
    configs: dict[str, Json] = {}
    for layouts, name in name_configs(candidate).items():
        entries: list[Json] = []
        for layout, numbers in groupby(range(len(layouts)), key=layouts.__getitem__):
            devices: dict[str, Json] = {"mig-devices": {**Counter(layout)}} if layout else {}
            entries.append({"devices": [*numbers], "mig-enabled": bool(layout), **devices})
        configs[name] = entries
    return {"version": "v1", "mig-configs": configs}
