"""CEL text → syntax tree."""
