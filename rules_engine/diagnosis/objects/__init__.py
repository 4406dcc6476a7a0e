"""Properties of objects that several parts of a diagnosis read: devices, holders of GPUs, times."""
