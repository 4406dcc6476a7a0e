"""The offline commands: check, test, explain, schema and convert. Results are values, rendered by `output`."""
