"""Facts of objects that several parts of a diagnosis need: devices, holders of GPUs, times."""
