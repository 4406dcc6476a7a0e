"""The offline commands: check, test, explain, effective, schema, convert. Results are values, rendered by `output`."""
