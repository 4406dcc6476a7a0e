"""Reports: one value for all answers, and one renderer for each format."""
