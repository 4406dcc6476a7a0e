"""Conversion of other webhooks' configurations."""
