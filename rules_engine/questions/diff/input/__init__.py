"""Reading of pods to decide: manifests, live objects of a cluster, and decision logs."""
