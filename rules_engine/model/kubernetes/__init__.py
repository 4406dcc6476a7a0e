"""Values of Kubernetes: pods, nodes, clusters, quantities."""
