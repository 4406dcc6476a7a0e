"""Loading of documents: text → positioned YAML → JSON Schema → fields."""
