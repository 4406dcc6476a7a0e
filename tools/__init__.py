"""Generators of files, and checks of the repository, run as `python -m tools.NAME`. They import no tests."""
