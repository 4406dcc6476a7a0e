"""Policies that the API server evaluates itself, translated from rules."""
