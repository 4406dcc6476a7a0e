"""Decide a pod under the rules of gpu-allocation, and check whether it would start on two workers with four GPUs."""

from pathlib import Path

from rules_engine import explain, load_cluster, load_manifests, load_rules, preflight

FOLDER = Path(__file__).parent

rules = load_rules(["set:gpu-allocation"])
cluster = load_cluster([FOLDER / "cluster.yaml"])
[pod] = load_manifests([FOLDER / "pod.yaml"])

decision = rules.mutate(pod, cluster)
for operation in decision.patch:
    print(operation.op, operation.path, operation.value)

print("\n".join(explain(rules, pod, cluster).diff))

answer = preflight(rules, [pod], cluster)
print(f"{pod.title()}: {answer.verdict}")
