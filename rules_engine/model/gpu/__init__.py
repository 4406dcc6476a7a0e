"""GPUs: names of their resources, MIG profiles."""
