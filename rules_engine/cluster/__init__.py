"""Clusters: their files and pods, the index of nodes, devices of drivers, and a model of kube-scheduler."""
