"""Renderers of the answer of a diff."""
