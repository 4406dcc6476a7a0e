"""From bytes to documents and programs: files, YAML, JSON Schemas, CEL."""
