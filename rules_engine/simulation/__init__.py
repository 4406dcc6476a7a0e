"""Simulation of a load on a cluster: admission by rules, scheduling, and the time that pods run."""
