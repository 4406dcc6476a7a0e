"""Objects of a cluster, from files or pages of the API, reduced to the members that a diagnosis reads."""
