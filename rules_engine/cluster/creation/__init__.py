"""The pod that a cluster creates: what controllers and the API server's own admission plugins add, and refuse."""
