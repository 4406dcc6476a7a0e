"""What writes generated files, and what checks the repository: `python -m tools.NAME`. Nothing here imports tests."""
