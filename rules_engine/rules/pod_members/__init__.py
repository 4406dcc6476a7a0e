"""Members that rules add to pods: their values, the reader of them from a document, and the writer to a pod."""
