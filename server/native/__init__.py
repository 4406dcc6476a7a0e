"""Policies of the API server, kept current from the rules and the cluster by one of the replicas."""
