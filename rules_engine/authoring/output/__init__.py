"""Results as text, JSON, SARIF and GitHub annotations."""
