"""Difference of two rule sets: the outcomes of workloads that a change of rules changes."""
