"""The demonstration (`gpu-rules demo`)."""
