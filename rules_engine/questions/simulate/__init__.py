"""Simulation of a workload on a cluster: admission by rules, scheduling, and the time that pods run."""
