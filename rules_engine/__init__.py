"""gpu-rules: declarative GPU admission rules for Kubernetes, compiled and decided without any I/O."""
