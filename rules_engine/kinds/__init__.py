"""Kinds of rules: one package each, with the same modules, and the registry."""
