"""Metrics, decision log, Events."""
