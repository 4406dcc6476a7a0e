"""Reports as text, JSON and HTML."""
