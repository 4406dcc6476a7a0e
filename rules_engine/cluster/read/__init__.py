"""Kubernetes objects in files: manifests, inventories, kubectl output."""
