"""Sections of a report before its findings."""
