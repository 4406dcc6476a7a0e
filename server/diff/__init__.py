"""`gpu-rules diff`: the parts that reach an API server or a gpu-rules server."""
