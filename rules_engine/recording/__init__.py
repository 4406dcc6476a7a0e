"""Recorded requests: what rules can read of a request and of the cluster, written by a server and decided again."""
