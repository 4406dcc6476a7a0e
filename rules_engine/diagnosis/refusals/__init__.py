"""GPU pods that the API server did not create, or that the kubelet of their node refused."""
