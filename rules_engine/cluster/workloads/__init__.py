"""Kinds of workloads: where the pod templates of an object are, and how many pods each of them makes."""
