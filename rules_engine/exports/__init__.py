"""Webhook configurations that follow from rules, and their drift."""
