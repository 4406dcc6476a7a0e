"""Reading of pods to decide: manifests, and the objects of a live cluster."""
