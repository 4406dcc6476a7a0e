"""Evaluation of a checked expression: the interpreter and the code generator."""
