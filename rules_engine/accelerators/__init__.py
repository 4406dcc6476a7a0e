"""Facts about accelerators, as data: vendors and their resources, cards and their partitions, labels of nodes."""
