"""Plans: the MIG layouts of nodes that serve a workload best."""
