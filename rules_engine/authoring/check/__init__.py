"""Checking of rule files: all problems, and the comments that ignore warnings."""
