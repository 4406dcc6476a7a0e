"""Moves to another floor."""
