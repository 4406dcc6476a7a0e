"""Score plugins of kube-scheduler, each as nodes by score, and the indexes that they read."""
