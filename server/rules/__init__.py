"""Rule files of the server: found, compiled, reloaded."""
