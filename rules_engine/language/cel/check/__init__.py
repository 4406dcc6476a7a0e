"""Syntax tree → checked expression: names, overloads, types."""
