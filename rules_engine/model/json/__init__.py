"""JSON values: strict and lenient readers, JSON Patch and edits."""
