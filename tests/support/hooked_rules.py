"""Rules in a repository with the hooks of .pre-commit-hooks.yaml."""

from tests.support.authoring import ladder

LADDER = ladder("mig", "nvidia.com/mig-2g.20gb", "nvidia.com/gpu")


TEST = """\
apiVersion: gpurules.io/v1
kind: RuleTest
metadata: {name: mig}
spec:
  cluster: {nodes: [{name: worker, allocatable: {nvidia.com/gpu: 4}}]}
  cases:
    - name: falls to the whole card
      pod: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-2g.20gb: 1}}}]}}
      expect: {containers: {main: {nvidia.com/gpu: 1}}}
"""


RULE_SET = {"ladder.yaml": LADDER, "ladder.test.yaml": TEST}
