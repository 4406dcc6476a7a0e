"""Certificates of the server: read, issued, served, renewed."""
