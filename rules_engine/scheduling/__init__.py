"""kube-scheduler's filters: the nodes that a pod can run on, and the message for one that can run on none."""
