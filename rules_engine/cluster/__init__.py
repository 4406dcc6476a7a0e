"""What there is: clusters and pods of files, the index of nodes, devices of drivers, and a model of kube-scheduler."""
