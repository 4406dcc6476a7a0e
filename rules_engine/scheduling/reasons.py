"""The scheduler's reasons for not running a pod on a node, in the words of Kubernetes 1.36."""

NO_NODES = "no nodes available to schedule pods"
"""The message in a cluster without nodes."""

UNSCHEDULABLE = "node(s) were unschedulable"
OTHER_NAME = "node(s) didn't match the requested node name"
TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
NOT_SPREAD = "node(s) didn't match pod topology spread constraints"
NO_TOPOLOGY = f"{NOT_SPREAD} (missing required label)"
NO_AFFINE_POD = "node(s) didn't match pod affinity rules"
OWN_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
NO_DEVICES = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"

FAILURE_START = 'running "DynamicResources" filter plugin: '
"""The start of the message about a filter that failed on a node."""
