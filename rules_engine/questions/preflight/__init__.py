"""Preflight: which pods of workloads would start now on a cluster as it is, and what would start the others."""
