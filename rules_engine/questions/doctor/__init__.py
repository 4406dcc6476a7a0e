"""Diagnosis of a cluster: why a GPU pod is waiting, and why a node offers no GPUs."""
