"""Problems of files: codes, places, texts."""
