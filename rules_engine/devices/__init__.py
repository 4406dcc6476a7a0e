"""What nodes offer by Dynamic Resource Allocation, as kube-scheduler 1.36 allocates devices for extended resources."""
