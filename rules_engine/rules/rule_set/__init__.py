"""Compiled rules, their index, and what they require of a cluster."""
