"""Certificates of the server, and who issues them."""
