"""Recorded requests: the fields of a request and of the cluster that rules read, to decide the request again."""
