"""YAML text → positioned nodes."""
