"""`gpu-rules doctor`: a diagnosis of files or of a live cluster, once or again and again."""
