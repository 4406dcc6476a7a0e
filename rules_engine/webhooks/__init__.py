"""Rules → webhook configurations, and their drift."""
