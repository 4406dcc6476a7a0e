"""Explanations: decisions with their reasons, what holds in a namespace, values of expressions."""
