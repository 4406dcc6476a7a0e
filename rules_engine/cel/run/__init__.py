"""Checked expression → value: the interpreter and the code generator."""
