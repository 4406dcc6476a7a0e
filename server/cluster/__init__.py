"""The cluster as the API server tells it: listed, watched, and published as values that decisions read."""
