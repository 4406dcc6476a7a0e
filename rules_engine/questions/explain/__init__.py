"""Explanations: decisions with their reasons, the rules that can apply in a namespace, values of expressions."""
