"""Allocation of devices for extended resources by Dynamic Resource Allocation, as in kube-scheduler 1.36."""
