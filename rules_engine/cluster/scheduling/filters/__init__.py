"""Filters that read taints, amounts, other pods or topologies, with the indexes of these."""
